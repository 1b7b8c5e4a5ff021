"""Positions that the caller gives, instead of computing them from lengths in every step.

cache_lengths -> Unsqueeze -> Add(Range(q_len)) -> Clip -> Gather        becomes        positions -> Gather
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import add_input, ancestry, constant, has_input
from edgeformer.exporter.ort_cpu.probing import Array, Step, values_in
from edgeformer.runtime import names

STEPS = (Step((0, 0), 3, 8), Step((4, 0, 1), 1, 8), Step((1 << 20, 7), 5, 8))  # the last beyond every table


class GivenPositions(InPlacePass):
    """Requires: the step graph of `edgeformer.runtime.names`. Ensures: nothing computes where new tokens stand.

    A table that is read at positions up to its end is read at those that are given, which are clamped to the model's.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        if not has_input(graph, names.CACHE_LENGTHS):
            return PassResult(model, modified=False)
        candidates = [value for node in graph for value in node.outputs if may_be_positions(value)]
        found = [value for value in candidates if are_positions(graph, value)]
        if found:
            positions = add_input(graph, names.POSITIONS, ir.DataType.INT64, ("batch", "q_len"))
            for value in found:
                value.replace_all_uses_with(positions)
        return PassResult(model, modified=bool(found))


def may_be_positions(value: ir.Value) -> bool:
    if value.dtype != ir.DataType.INT64 or value.shape is None or len(value.shape) != 2:
        return False
    inputs = ancestry(value)[1]
    return names.CACHE_LENGTHS in inputs and inputs <= {names.CACHE_LENGTHS, names.INPUT_IDS}


def are_positions(graph: ir.Graph, value: ir.Value) -> bool:
    """Whether a value is each new token's position, or the end of the table that it is looked up in if that is less."""
    found = []
    for step in STEPS:
        values = values_in(graph, [value], step)
        if values is None or values[0].shape != step.positions.shape:
            return False
        found.append(values[0])
    last = int(max(array.max() for array in found))
    if last < max(step.positions.max() for step in STEPS) and not indexes_tables_of(value, last + 1):
        return False
    return all(equal(array, step, last) for array, step in zip(found, STEPS, strict=True))


def equal(found: Array, step: Step, last: int) -> bool:
    return bool((found == np.minimum(step.positions, last)).all())


def indexes_tables_of(value: ir.Value, rows: int) -> bool:
    """Whether it is used for nothing else than to look up rows of tables that are as long."""
    tables = [constant(node.inputs[0]) if node.op_type == "Gather" else None for node in value.consumers()]
    return bool(tables) and all(table is not None and table.shape[0] == rows for table in tables)
