"""Checkpoint folders: `config.json` and weights, read without executing anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from edgeformer.models.configs.keys import Keys
from edgeformer.models.families import Family, config_class, family_of, model_class, read_values
from edgeformer.models.stored import Stored
from edgeformer.models.transformer import Transformer
from edgeformer.models.weight_files import WEIGHTS, WeightFiles, missing_files, open_weights
from edgeformer.runtime.errors import CheckpointError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # whole numbers would need their scales


def read_config(folder: Path) -> Any:
    """The configuration of a checkpoint folder: an instance of its family's class.

    Raises:
        CheckpointError: config.json is missing, cannot be read, or is not JSON.
        ConfigError: its content is not a model that is known here; every problem is named.
    """
    return read_family(folder)[1]


def read_family(folder: Path) -> tuple[Family, Any]:
    """A checkpoint folder's family and configuration, as `read_config` reads them."""
    values, subject = read_values(folder), str(folder / "config.json")
    family = family_of(values, subject)
    return family, config_class(family).from_keys(Keys(values, subject, folder))


def load_checkpoint(folder: Path, before_weights: Callable[[Path], None] = lambda folder: None) -> Any:
    """The model of a checkpoint folder, in float32 and evaluation mode.

    Args:
        folder: with config.json and weights.
        before_weights: called with it once its files are there and its configuration is known, before weights are read.

    Raises:
        CheckpointError: with every file that is missing, or every tensor that is missing, unknown, of another shape,
            of another kind than floating point, or not finite.
        ConfigError: the configuration is not one that is known here.
    """
    if not folder.is_dir():
        raise CheckpointError(f"checkpoint {folder}", ["there is no such folder"])
    if missing := [*([] if (folder / "config.json").exists() else ["config.json is missing"]), *missing_files(folder)]:
        raise CheckpointError(f"checkpoint {folder}", missing)
    family, config = read_family(folder)
    before_weights(folder)
    with torch.device("meta"):
        model: nn.Module = model_class(family)(config)
    with open_weights(folder) as weights:
        fill(model, weights, folder)
    return model.eval()


def fill(model: nn.Module, weights: WeightFiles, folder: Path) -> None:
    """Give a model without memory its parameters, one tensor after the other.

    Raises:
        CheckpointError: with every tensor that does not fit.
    """
    problems, used = [], set[str]()
    filled: dict[str, Tensor] = {}
    for name, empty in model.state_dict().items():
        stored = stored_as(model, name)
        found = next((n for n in names_of(model, stored) if n in weights), None)
        if found is None:
            if not leave_out(model, name):
                problems.append(f"tensor {stored.name} is missing")
            continue
        used.add(found)
        if problem := wrong_tensor(found, weights, stored, tuple(empty.shape)):
            problems.append(problem)
            continue
        tensor = stored.taken_from(weights.tensor(found))
        if not torch.isfinite(tensor).all():
            problems.append(f"tensor {found} holds NaN or infinite values")
        filled[name] = tensor.to(torch.float32).contiguous()
    ignored = getattr(model, "is_ignored", lambda name: False)
    problems += [f"tensor {n} is unknown to this model" for n in weights.names() if n not in used and not ignored(n)]
    if problems:
        raise CheckpointError(f"checkpoint {folder}", problems)
    model.load_state_dict(filled, assign=True)
    for module in model.modules():  # tables that are computed, not stored
        if callable(compute := getattr(module, "compute_tables", None)):
            compute()


def stored_as(model: nn.Module, name: str) -> Stored:
    """Where a checkpoint keeps a parameter of this model: under its own name, unless the model says otherwise."""
    rule = getattr(model, "stored_as", Stored)
    stored: Stored = rule(name)
    return stored


def leave_out(model: nn.Module, name: str) -> bool:
    """Whether this model does without a parameter that its checkpoint does not hold; if so, it has none any more."""
    rule = getattr(model, "leave_out", lambda name: False)
    left_out: bool = rule(name)
    return left_out


def names_of(model: nn.Module, stored: Stored) -> Iterator[str]:
    """A tensor's names, and what it is called where the checkpoint was saved with or without the model's head."""
    prefix = getattr(model, "base_prefix", "")
    for name in (stored.name, *stored.older):
        yield name
        if prefix:
            yield name.removeprefix(prefix) if name.startswith(prefix) else prefix + name


def wrong_tensor(name: str, weights: WeightFiles, stored: Stored, shape: tuple[int, ...]) -> str | None:
    """What is wrong with a stored tensor, told from its header alone."""
    given, dtype = weights.shape(name), weights.dtype(name)
    expected = stored.stored_shape(shape)
    if given != expected:
        return f"tensor {name} is {given}, expected {expected}"
    if dtype not in FLOATS:
        return f"tensor {name} is {dtype}, expected one of {', '.join(map(str, FLOATS))}"
    return None


def save_checkpoint(folder: Path, model: Transformer, dtype: torch.dtype = torch.float32) -> None:
    """Write `config.json` and the weights, stored as dtype, into an existing folder.

    Raises:
        CheckpointError: a weight is not finite, or not in dtype; nothing is written.
    """
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in model.state_dict().items()}
    if problems := [f"tensor {n} holds NaN or infinite values" for n, t in tensors.items() if not t.isfinite().all()]:
        raise CheckpointError(f"checkpoint {folder}", problems)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict(), indent=2) + "\n", encoding="utf-8")
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
