"""Positions that the caller gives, instead of computing them from lengths in every step.

cache_lengths -> Unsqueeze -> Add(Range(q_len)) -> Clip -> Gather        becomes        positions -> Gather
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

from edgeformer.exporter.ort_cpu.matching import add_input, ancestry, graph_input
from edgeformer.runtime import names


class GivenPositions(InPlacePass):
    """Requires: a step graph whose attentions do not read cache_lengths any more. Ensures: nothing does."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        lengths = next((value for value in graph.inputs if value.name == names.CACHE_LENGTHS), None)
        if lengths is None:
            return PassResult(model, modified=False)
        clips = [n for n in graph if n.op_type == "Clip" and names.CACHE_LENGTHS in ancestry(n.outputs[0])[1]]
        if len(clips) != 1:
            raise PreconditionError(f"{len(clips)} clipped positions, expected 1")
        positions = add_input(graph, names.POSITIONS, ir.DataType.INT64, ("batch", "q_len"))
        clips[0].outputs[0].replace_all_uses_with(positions)
        remove_dead(graph, clips[0])
        if list(lengths.uses()):
            raise PreconditionError(f"{names.CACHE_LENGTHS} is used for more than positions")
        graph.inputs.remove(graph_input(graph, names.CACHE_LENGTHS))
        return PassResult(model, modified=True)


def remove_dead(graph: ir.Graph, node: ir.Node) -> None:
    """Remove a node that nothing uses, and what was computed for it alone."""
    parents = [value.producer() for value in node.inputs if value is not None]
    graph.remove(node, safe=True)
    for parent in parents:
        if parent is not None and parent.graph is graph and not any(list(v.uses()) for v in parent.outputs):
            remove_dead(graph, parent)
