"""Generation options from the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeformer.runtime import GenerationConfig


def changed(defaults: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """The checkpoint's own options, those that were given changed.

    Raises:
        OptionError: a value out of range, or options that contradict each other.
    """
    changes = {name: value for name, value in given.items() if value is not None}
    words = {"true": True, "false": False}
    if "early_stopping" in changes:
        changes["early_stopping"] = words.get(changes["early_stopping"], changes["early_stopping"])
    return defaults.changed(**changes)


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
