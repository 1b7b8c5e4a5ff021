"""Matrices stored in 16 bits, and computed in float32: half the file, and in memory what float32 takes.

    MatMul(x, weight)     becomes   MatMul(x, Cast(weight))
    Gather(table, ids)    becomes   Cast(Gather(table, ids))

ONNX Runtime computes a Cast of a constant once, when it loads. A table that is only looked up stays in 16 bits.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

from edgeformer.exporter.ort_cpu.matching import take_over

MOST = {ir.DataType.FLOAT16: 65504.0, ir.DataType.BFLOAT16: 3.3895e38}
DTYPES = {"fp16": ir.DataType.FLOAT16, "bf16": ir.DataType.BFLOAT16}
LEAST = 1024  # numbers of a matrix; smaller ones, such as a bias by distance, are not worth an operator


class StoredInHalf(InPlacePass):
    """Requires: a graph whose every other rewriting is done. Ensures: no large float32 matrix among its weights."""

    def __init__(self, precision: str) -> None:
        super().__init__()
        self.dtype = DTYPES[precision]

    def call(self, model: ir.Model) -> PassResult:
        found = [value for value in model.graph.initializers.values() if is_matrix(value)]
        for value in found:
            self.rewrite(model.graph, value)
        return PassResult(model, modified=bool(found))

    def rewrite(self, graph: ir.Graph, value: ir.Value) -> None:
        tensor, readers = value.const_value, list(value.uses())
        assert tensor is not None
        value.const_value = ir.tensor(rounded(tensor.numpy(), self.dtype, str(value.name)), name=value.name)
        value.dtype = self.dtype
        whole = None
        for node, index in readers:
            if is_lookup(node, index):
                rows = ir.node("Gather", node.inputs, node.attributes, name=node.name)
                wide = float32(rows.outputs[0])
                graph.insert_before(node, [rows, wide])
                take_over(node.outputs[0], wide.outputs[0])
                graph.remove(node, safe=True)
                continue
            if whole is None:
                whole = float32(value)
                graph.insert_before(graph[0], whole)
            node.replace_input_with(index, whole.outputs[0])


def float32(value: ir.Value) -> ir.Node:
    node = ir.node("Cast", [value], {"to": ir.DataType.FLOAT})
    node.outputs[0].dtype, node.outputs[0].shape = ir.DataType.FLOAT, value.shape
    return node


def is_matrix(value: ir.Value) -> bool:
    tensor = value.const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) != 2:
        return False
    return int(tensor.size) >= LEAST


def is_lookup(node: ir.Node, index: int) -> bool:
    """Whether a node reads rows of the matrix that is its input of this index, rather than all of it."""
    axis = node.attributes.get("axis")
    return node.op_type == "Gather" and index == 0 and (axis is None or axis.as_int() == 0)


def rounded(array: NDArray[np.float32], dtype: ir.DataType, name: str) -> NDArray[np.generic]:
    """In 16 bits.

    Raises:
        PreconditionError: a number is beyond what the type holds.
    """
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype.numpy())
    if not np.isfinite(narrow.astype(np.float32)).all():
        most, holds = float(np.abs(array).max()), MOST[dtype]
        raise PreconditionError(f"{name} goes up to {most:g}, more than {dtype.name.lower()} can hold ({holds:g})")
    return narrow
