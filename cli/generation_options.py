"""Generation options from the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeformer.runtime import GenerationConfig

SPELLED = {"stop_strings": "--stop"}


def spelled(name: str) -> str:
    """An option as the command line has it."""
    return SPELLED.get(name, f"--{name.replace('_', '-')}")


def changed(defaults: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """The checkpoint's own options, those that were given changed.

    Raises:
        OptionError: a value out of range, or options that contradict each other.
    """
    changes = {name: value for name, value in given.items() if value is not None}
    words = {"true": True, "false": False}
    if "early_stopping" in changes:
        changes["early_stopping"] = words.get(changes["early_stopping"], changes["early_stopping"])
    with as_typed(given):
        return defaults.changed(**changes)


@contextlib.contextmanager
def as_typed(names: Iterable[str]) -> Iterator[None]:
    """Let errors name options as the command line spells them.

    Args:
        names: of the options that it has.

    Raises:
        OptionError: one came up.
    """
    from edgeformer.runtime.errors import OptionError

    try:
        yield
    except OptionError as error:
        raise OptionError(typed(str(error), names)) from error


def typed(message: str, names: Iterable[str]) -> str:
    """A message with options spelled `--max-new-tokens`; names that are words as well count before a value alone."""
    for name in names:
        value = "" if "_" in name else "(?= is |=)"
        message = re.sub(rf"(?<![\w-]){name}(?!\w){value}", spelled(name), message)
    return message


def for_lines(config: GenerationConfig, count: int, first: int) -> GenerationConfig:
    """Options for some of many lines, whose seeds are what they would be if all lines were given at once.

    Args:
        count: how many lines.
        first: how many came before.
    """
    from edgeformer.runtime.sampling import input_seeds

    if not config.do_sample or config.seed is None:
        return config
    return dataclasses.replace(config, seed=input_seeds(config.seed, count, first))
