"""The files that hold a checkpoint's weights: safetensors in one file or in shards; old `.bin` files, read safely."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from edgeformer.runtime.errors import CheckpointError

WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
    "C64": torch.complex64, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


class WeightFiles(Protocol):
    """Named tensors; shapes and types are known without reading any."""

    def names(self) -> list[str]: ...
    def __contains__(self, name: str) -> bool: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> torch.dtype | str:
        """The element type; a string where torch has no such type."""

    def tensor(self, name: str) -> Tensor: ...


class SafeFiles:
    """Tensors of safetensors files, read one at a time."""

    def __init__(self, files: list[Any]) -> None:
        self.files = {name: file for file in files for name in file.keys()}  # noqa: SIM118  # it is no dict

    def names(self) -> list[str]:
        return list(self.files)

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> torch.dtype | str:
        kind: str = self.files[name].get_slice(name).get_dtype()
        return DTYPES.get(kind, kind)

    def tensor(self, name: str) -> Tensor:
        tensor: Tensor = self.files[name].get_tensor(name)
        return tensor


class Tensors:
    """Tensors that are in memory."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def names(self) -> list[str]:
        return list(self.tensors)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        return self.tensors[name].dtype

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name]


@contextlib.contextmanager
def open_weights(folder: Path) -> Iterator[WeightFiles]:
    """The weights of a checkpoint folder.

    Raises:
        CheckpointError: with every file that is missing or damaged; a pickle that holds more than tensors.
    """
    paths = weight_paths(folder)
    if paths[0].suffix == ".bin":
        yield Tensors(dict(item for path in paths for item in unpickled(folder, path).items()))
        return
    with contextlib.ExitStack() as stack:
        files, problems = [], []
        for path in paths:
            try:
                files.append(stack.enter_context(safe_open(path, framework="pt")))
            except (SafetensorError, OSError, RuntimeError) as error:  # the last where it is too large to be mapped
                problems.append(f"{path.name} cannot be read: {error}")
        if problems:
            raise CheckpointError(f"checkpoint {folder}", problems)
        yield SafeFiles(files)


def count_numbers(path: Path) -> int:
    """Numbers in all tensors of a safetensors file, by its header alone: the file may be larger than the memory.

    Raises:
        SafetensorError, OSError: it is damaged.
    """
    with safe_open(path, framework="np") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118  # it is no dict


def weight_paths(folder: Path) -> list[Path]:
    """The files of a checkpoint's weights, the safe ones where there are both; empty where there are none.

    Raises:
        CheckpointError: a list of shards is damaged.
    """
    subject = f"checkpoint {folder}"
    for name in (WEIGHTS, PICKLED):
        if (folder / name).exists():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if not index.exists():
            continue
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(subject, [f"{index.name} is damaged: {error!r}"]) from error
        if outside := [shard for shard in shards if not isinstance(shard, str) or Path(shard).name != shard]:
            raise CheckpointError(
                subject, [f"{index.name} names {shard!r}, which is no file here" for shard in outside]
            )
        return [folder / shard for shard in shards]
    return []


def missing_files(folder: Path) -> list[str]:
    """One sentence for each file of the weights that is not there."""
    if not (paths := weight_paths(folder)):
        return [f"{WEIGHTS} is missing"]
    return [f"{path.name} is missing" for path in paths if not path.exists()]


def unpickled(folder: Path, path: Path) -> dict[str, Tensor]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"checkpoint {folder}",
            [
                f"{path.name} holds more than tensors, and to run what a file holds is refused: {reason}; "
                f"save the weights as {WEIGHTS}"
            ],
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError(f"checkpoint {folder}", [f"{path.name} cannot be read: {error}"]) from error
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise CheckpointError(f"checkpoint {folder}", [f"{path.name} holds no table of tensors by name"])
    return tensors
