"""Activations as one kernel each.

x -+-> Sigmoid -> Mul -> y      becomes      x -> QuickGelu(alpha=1)
'---------------^
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.matching import producer, take_over


class FusedActivations(InPlacePass):
    """Ensures: nothing is multiplied with its own sigmoid, and GELU by tanh is FastGelu, which is faster."""

    def call(self, model: ir.Model) -> PassResult:
        graph, modified = model.graph, False
        for node in list(graph):
            new = fused(node)
            if new is not None:
                graph.insert_before(node, new)
                take_over(node.outputs[0], new.outputs[0])
                modified = True
        if modified:
            model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=modified)


def fused(node: ir.Node) -> ir.Node | None:
    """What takes a node's place, if something does."""
    if node.op_type == "Gelu" and node.domain == "":
        approximate = node.attributes.get("approximate")
        if approximate is not None and approximate.as_string() == "tanh":
            return ir.node("FastGelu", node.inputs, domain=MICROSOFT)
    if node.op_type == "Mul":
        for x, gate in (node.inputs, reversed(node.inputs)):
            sigmoid = producer(gate, "Sigmoid")
            if sigmoid is not None and x is not None and sigmoid.inputs[0] is x:
                return ir.node("QuickGelu", [x], {"alpha": 1.0}, domain=MICROSOFT)
    return None
