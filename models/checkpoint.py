"""Checkpoint folders: `config.json` and `model.safetensors`, read without executing anything."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from edgeformer.models.configs import read_config
from edgeformer.models.transformer import Transformer
from edgeformer.runtime.errors import CheckpointError

WEIGHTS = "model.safetensors"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # whole numbers would need their scales


def load_checkpoint(folder: Path) -> Transformer:
    """The model of a checkpoint folder, in float32 and evaluation mode.

    Raises:
        CheckpointError: with every file that is missing, or every tensor that is missing, unknown, of another shape,
            of another kind than floating point, or not finite.
        ConfigError: the configuration is not one that is known here.
    """
    if not folder.is_dir():
        raise CheckpointError(f"checkpoint {folder}", ["there is no such folder"])
    if missing := [name for name in ("config.json", WEIGHTS) if not (folder / name).exists()]:
        raise CheckpointError(f"checkpoint {folder}", [f"{name} is missing" for name in missing])
    model = Transformer(read_config(folder))
    try:
        tensors = load_file(folder / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"checkpoint {folder}", [f"{WEIGHTS} cannot be read: {error}"]) from error
    if problems := wrong_tensors(model.state_dict(), tensors):
        raise CheckpointError(f"checkpoint {folder}", problems)
    model.load_state_dict(tensors)
    return model.float().eval()


def wrong_tensors(expected: dict[str, torch.Tensor], given: dict[str, torch.Tensor]) -> list[str]:
    """One sentence for each tensor that does not fit."""
    problems = [f"tensor {name} is missing" for name in expected if name not in given]
    for name, tensor in given.items():
        if name not in expected:
            problems.append(f"tensor {name} is unknown to this model")
        elif tensor.shape != expected[name].shape:
            problems.append(f"tensor {name} is {tuple(tensor.shape)}, expected {tuple(expected[name].shape)}")
        elif tensor.dtype not in FLOATS:
            problems.append(f"tensor {name} is {tensor.dtype}, expected one of {', '.join(map(str, FLOATS))}")
        elif not torch.isfinite(tensor).all():
            problems.append(f"tensor {name} holds NaN or infinite values")
    return problems


def save_checkpoint(folder: Path, model: Transformer, dtype: torch.dtype = torch.float32) -> None:
    """Write `config.json` and the weights, stored as dtype, into an existing folder.

    Raises:
        CheckpointError: a weight is not finite, or not in dtype; nothing is written.
    """
    tensors = {name: tensor.detach().to(dtype).contiguous() for name, tensor in model.state_dict().items()}
    if problems := wrong_tensors(tensors, tensors):
        raise CheckpointError(f"checkpoint {folder}", problems)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict(), indent=2) + "\n", encoding="utf-8")
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
