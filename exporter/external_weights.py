"""Graphs on disk that share one file of weights."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir as ir
from onnx_ir.external_data import convert_tensors_to_external, load_to_model

WEIGHTS = "weights.data"
INLINE_BYTES = 1024  # smaller tensors stay in the graph, where tools show them


def load_graph(path: Path) -> ir.Model:
    """A graph with its weights in memory.

    onnx_ir refuses a file of several hard links; a bundle that was copied by links, or whose optimization was killed,
    has them. What it protects from is checked here: weights stand beside their graph.

    Raises:
        ValueError: they do not.
    """
    model = ir.load(path)
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            location = str(tensor.location)
            if Path(location).name != location:
                raise ValueError(f"{path} keeps its weights elsewhere: {location}")
            value.const_value = ir.ExternalTensor(
                path.parent / location, tensor.offset, tensor.length, tensor.dtype, shape=tensor.shape,
                name=value.name or "",
            )  # fmt: skip
    return load_to_model(model)


def save_graphs(folder: Path, graphs: Mapping[str, ir.Model]) -> None:
    """Write `{role}.onnx` for each graph, and their weights beside them; tensors of the same bytes are stored once.

    Raises:
        OSError: writing failed.
    """
    distinct: dict[tuple[str, bytes], ir.TensorProtocol] = {}
    uses: list[tuple[ir.Value, ir.TensorProtocol, tuple[str, bytes]]] = []
    for model in graphs.values():
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.nbytes < INLINE_BYTES:
                continue
            key = (tensor.dtype.name, hashlib.sha256(tensor.tobytes()).digest())
            distinct.setdefault(key, tensor)
            uses.append((value, tensor, key))
    external = convert_tensors_to_external(list(distinct.values()), folder, WEIGHTS)
    check_whole(folder / WEIGHTS, external)
    written = dict(zip(distinct, external, strict=True))
    for value, tensor, key in uses:
        shared = written[key]
        value.const_value = ir.ExternalTensor(
            shared.location, shared.offset, shared.length, shared.dtype, shape=ir.Shape(tensor.shape.numpy()),
            name=value.name or "", base_dir=folder,
        )  # fmt: skip
    for role, model in graphs.items():
        ir.save(model, folder / f"{role}.onnx")


def check_whole(path: Path, tensors: Sequence[ir.TensorProtocol]) -> None:
    """Raise for a file that is cut short: what writes an array leaves the last of a full disk's errors unsaid.

    Raises:
        OSError: the file lacks an end.
    """
    ends = [(t.offset or 0) + (t.length or 0) for t in tensors if isinstance(t, ir.ExternalTensor)]
    if ends and path.stat().st_size < max(ends):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
