"""Modules that this project has never seen: found by name, and checked against what export needs."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any, get_args

from torch import nn

from edgeformer.models import protocols
from edgeformer.models.configs.keys import wrong_size
from edgeformer.runtime.errors import ModuleError

NEEDED = {
    "decoder": protocols.DecoderConfig,
    "encoder-decoder": protocols.EncoderDecoderConfig,
    "encoder": protocols.EncoderConfig,
}
ARGUMENTS = {  # of each method, in this order
    "decoder": {"step": 4, "forward": 1},
    "encoder-decoder": {"encode": 2, "step": 6, "forward": 3},
    "encoder": {"encode": 2},
}


def is_module_name(text: str) -> bool:
    """Whether a command's argument names a module of one's own, `package.module:factory`, instead of a folder."""
    module, colon, factory = text.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))


def make_module(name: str) -> nn.Module:
    """Import `package.module` and call `factory`, or take it as it is where it is a module already.

    The current folder is searched first, as `python -m` does.

    Raises:
        ModuleError: there is none, or it gives something else than a torch module.
    """
    module_name, _, factory_name = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # it is there, and itself imports what is not
        raise ModuleError(name, [f"there is no module {error.name!r}, neither installed nor in {here}"]) from error
    made: Any = getattr(found, factory_name, None)
    if made is None:
        raise ModuleError(name, [f"{module_name} has no {factory_name!r}"])
    if not isinstance(made, nn.Module):
        if not callable(made):
            raise ModuleError(
                name, [f"{factory_name} is {made!r}, expected a torch module or a function that makes one"]
            )
        made = made()
    if not isinstance(made, nn.Module):
        raise ModuleError(name, [f"{factory_name} gave {made!r:.80}, expected a torch module"])
    return made


def check_module(module: nn.Module) -> None:
    """Refuse a module that cannot be exported.

    Raises:
        ModuleError: with everything that it lacks.
    """
    subject = type(module).__name__
    try:
        kind = protocols.kind_of(module)
    except TypeError:
        lack = "it has neither `step` nor `encode`; edgeformer.models.protocols says what they take and give"
        raise ModuleError(subject, [lack]) from None
    problems = [p for name, count in ARGUMENTS[kind].items() if (p := wrong_method(module, name, count))]
    config = getattr(module, "config", None)
    if config is None:
        problems.append(f"it has no `config`, which gives {', '.join(attributes(NEEDED[kind]))}")
    else:
        problems += [f"its config has no `{name}`" for name in attributes(NEEDED[kind]) if not hasattr(config, name)]
        check = senseless_encoder if kind == "encoder" else senseless
        problems += check(config) if not problems else []
    problems += [f"parameter {n} holds NaN or infinite values" for n, p in module.named_parameters() if not finite(p)]
    if problems:
        raise ModuleError(f"{subject}, a module of kind {kind},", problems)


def finite(parameter: nn.Parameter) -> bool:
    return bool(parameter.isfinite().all())


def wrong_method(module: nn.Module, name: str, count: int) -> str | None:
    method = getattr(module, name, None)
    if not callable(method) or (name == "forward" and type(module).forward is nn.Module.forward):
        return f"it has no `{name}`, which takes {count} arguments"
    try:
        inspect.signature(method).bind(*[None] * count)
    except TypeError:
        return f"its `{name}` does not take {count} arguments; edgeformer.models.protocols names them"
    return None


def attributes(protocol: type) -> list[str]:
    """Names of a protocol's properties, its parents' first."""
    found = {
        name: None for part in reversed(protocol.__mro__) for name, v in vars(part).items() if isinstance(v, property)
    }
    return list(found)


def senseless(config: Any) -> list[str]:
    """What is wrong with the numbers of a config."""
    sizes = ["vocab_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "max_positions"]
    problems = wrong_sizes(config, sizes)
    if not problems:
        if config.num_heads % config.num_kv_heads:
            problems.append(f"config.num_heads {config.num_heads} is no multiple of num_kv_heads {config.num_kv_heads}")
        ids = [config.pad_token_id, config.start_token_id, *config.eos_token_ids]
        problems += [
            f"token {i!r} is outside the vocabulary of {config.vocab_size}"
            for i in ids
            if i not in range(config.vocab_size)
        ]
    return problems


def wrong_sizes(config: Any, names: list[str]) -> list[str]:
    found = (wrong_size(name, getattr(config, name)) for name in names)
    return [f"config.{problem}" for problem in found if problem is not None]


def senseless_encoder(config: Any) -> list[str]:
    """What is wrong with the numbers and the head of an encoder's config."""
    problems = wrong_sizes(config, ["vocab_size", "max_positions", "d_model", "num_layers", "num_heads", "head_dim"])
    for name, known in (("head", get_args(protocols.Head)), ("scoring", get_args(protocols.Scoring))):
        if getattr(config, name) not in known:
            problems.append(f"config.{name} is {getattr(config, name)!r}, expected one of {', '.join(known)}")
    if config.head in ("sequence-classes", "token-classes") and not config.labels:
        problems.append(f"config.labels is {config.labels!r}, expected a name for each class")
    if not problems and config.pad_token_id not in range(config.vocab_size):
        problems.append(f"token {config.pad_token_id!r} is outside the vocabulary of {config.vocab_size}")
    return problems
