"""Gated feed-forward layers by an operator of our own.

Split(packed) -+-> QuickGelu(alpha=1) -> Mul -> y      becomes      SwiGLU(packed)
               '-------------------------^
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.matching import producer, take_over
from edgeformer.exporter.ort_cpu.own_operators import DOMAIN, carry, function_of

WIDTH_STEP = 8  # that the width of a half is a multiple of


class OwnGates(InPlacePass):
    """Ensures: no half of a value is multiplied with the SiLU of the half before it, where both are wide enough."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [(node, packed) for node in graph if (packed := gated_by_its_half(node)) is not None]
        for node, packed in found:
            new = ir.node("SwiGLU", [packed], domain=DOMAIN)
            graph.insert_before(node, new)
            take_over(node.outputs[0], new.outputs[0])
        if found:
            carry(model, gate_function(model.opset_imports[""]))
        return PassResult(model, modified=bool(found))


def gated_by_its_half(node: ir.Node) -> ir.Value | None:
    """What a Mul computes the gated halves of, if that is what it does."""
    if node.op_type != "Mul":
        return None
    for gated, value in (node.inputs, reversed(node.inputs)):
        activation, split = producer(gated, "QuickGelu"), producer(value, "Split")
        if activation is None or split is None or activation.attributes["alpha"].as_float() != 1:
            continue
        halves = [half.shape[-1] if half.shape is not None else None for half in split.outputs]
        in_order = tuple(split.outputs) == (activation.inputs[0], value)
        if in_order and isinstance(halves[0], int) and halves[0] == halves[1] and halves[0] % WIDTH_STEP == 0:
            return split.inputs[0]
    return None


def gate_function(opset: int) -> ir.Function:
    packed = ir.val("packed")
    split = ir.node("Split", [packed], {"axis": -1, "num_outputs": 2}, num_outputs=2)
    gate = ir.node("QuickGelu", [split.outputs[0]], {"alpha": 1.0}, domain=MICROSOFT)
    gated = ir.node("Mul", [gate.outputs[0], split.outputs[1]])
    gated.outputs[0].name = "y"
    return function_of("SwiGLU", [packed], [split, gate, gated], gated.outputs, {}, opset)
