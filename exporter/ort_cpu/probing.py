"""What a small part of a graph computes, found out by computing it.

Masks and positions can be written in many ways; their values for a few lengths tell more than their operators do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx_ir.convenience import extract

from edgeformer.exporter.ort_cpu.matching import ancestry
from edgeformer.runtime import names

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A step to compute: tokens in each row's cache, new tokens a row, and the cache's capacity."""

    lengths: tuple[int, ...]
    q_len: int
    capacity: int = 1

    @property
    def positions(self) -> NDArray[np.int64]:
        """Where the new tokens stand, (batch, q_len)."""
        return np.array(self.lengths, np.int64)[:, None] + np.arange(self.q_len)


def values_in(graph: ir.Graph, values: Sequence[ir.Value], step: Step) -> list[Array] | None:
    """What some values are in a step, where they follow from lengths and shapes; None if that cannot be computed."""
    extents = {"batch": len(step.lengths), "q_len": step.q_len, "capacity": step.capacity}
    given = {names.CACHE_LENGTHS: np.array(step.lengths, np.int64), names.POSITIONS: step.positions}
    return values_for(graph, values, extents, given)


def values_for(
    graph: ir.Graph, values: Sequence[ir.Value], extents: Mapping[str, int], given: Mapping[str, Array]
) -> list[Array] | None:
    """What some values are for these inputs and these extents of all others, of which only the shape counts."""
    needed = set().union(*(ancestry(value)[1] for value in values))
    inputs = [value for value in graph.inputs if value.name in needed]
    arrays = []
    for value in inputs:
        if value.shape is None or value.dtype is None:
            return None
        shape = [dim if isinstance(dim, int) else extents.get(str(dim.value), 1) for dim in value.shape]
        zeros = np.broadcast_to(np.zeros((), value.dtype.numpy()), shape)  # takes no memory, however long a cache is
        arrays.append(given.get(str(value.name), zeros))
    return evaluate(graph, inputs, values, arrays)


def evaluate(
    graph: ir.Graph, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], arrays: Sequence[Array]
) -> list[Array] | None:
    """The part of a graph between some values, computed by ONNX's reference; None if it cannot do that."""
    try:
        part = ir.Model(extract(graph, inputs, outputs), ir_version=10)
        given = {str(value.name): array for value, array in zip(part.graph.inputs, arrays, strict=True)}
        found = ReferenceEvaluator(ir.to_proto(part)).run(None, given)
    except Exception:  # it has many: operators that it lacks, shapes that do not fit, indices outside of tables
        return None
    return [np.asarray(array) for array in found]
