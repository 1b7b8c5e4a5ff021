"""Sums and their norms by operators of our own.

    Add(x, residual) -> LayerNormalization(weight, bias)       becomes    AddLayerNormalization
    Add(x, residual) -> SimplifiedLayerNormalization(weight)   becomes    AddRMSNormalization

ONNX Runtime's operators that do so are slower than the two. What else reads the sum reads the second output.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import constant, producer, take_over
from edgeformer.exporter.ort_cpu.norms import over_last_axis
from edgeformer.exporter.ort_cpu.own_operators import DOMAIN, carry, function_of, passed_on

OPERATORS = {"LayerNormalization": "AddLayerNormalization", "SimplifiedLayerNormalization": "AddRMSNormalization"}
WIDTH_STEP = 8  # that the width is a multiple of
USUAL_EPSILON = 1e-5


class OwnNorms(InPlacePass):
    """Ensures: no norm with a constant weight, and a bias if it subtracts the mean, reads a sum of two values alike."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = {rewrite(graph, node) for node in list(graph) if node.op_type in OPERATORS} - {None}
        for norm, name in OPERATORS.items():
            if name in found:
                carry(model, norm_function(norm, name, model.opset_imports[""]))
        return PassResult(model, modified=bool(found))


def rewrite(graph: ir.Graph, node: ir.Node) -> str | None:
    """The operator that took a norm's place."""
    add, name = producer(node.inputs[0], "Add"), OPERATORS[node.op_type]
    weights = node.inputs[1:]
    wanted = 2 if node.op_type == "LayerNormalization" else 1
    if add is None or len(weights) != wanted or any(constant(value) is None for value in weights):
        return None
    if not over_last_axis(node) or any(list(value.uses()) for value in node.outputs[1:]):
        return None
    if not are_alike(*add.inputs) or add.outputs[0].is_graph_output():
        return None
    epsilon = node.attributes.get("epsilon")
    attributes = {"epsilon": epsilon.as_float() if epsilon is not None else USUAL_EPSILON}
    new = ir.node(name, [*add.inputs, *weights], attributes, domain=DOMAIN, num_outputs=2)
    graph.insert_before(add, new)
    for old, value in zip((node.outputs[0], add.outputs[0]), new.outputs, strict=True):
        take_over(old, value)
    return name


def are_alike(x: ir.Value | None, residual: ir.Value | None) -> bool:
    """Whether two values are known to have the same shape, whose last extent the operators take."""
    if x is None or residual is None or x.shape is None or residual.shape is None or len(x.shape) < 2:
        return False
    extents = [tuple(extent if isinstance(extent, int) else extent.value for extent in value.shape)
               for value in (x, residual) if value.shape is not None]  # fmt: skip
    width = extents[0][-1]
    return extents[0] == extents[1] and None not in extents[0] and isinstance(width, int) and width % WIDTH_STEP == 0


def norm_function(norm: str, name: str, opset: int) -> ir.Function:
    kinds = {"epsilon": ir.AttributeType.FLOAT}
    inputs = [
        ir.val(given) for given in ("x", "residual", "weight", "bias")[: 4 if norm == "LayerNormalization" else 3]
    ]
    add = ir.node("Add", inputs[:2])
    given = [ir.AttrInt64("axis", -1), ir.AttrInt64("stash_type", 1), *passed_on(kinds)]
    node = ir.Node("", norm, [add.outputs[0], *inputs[2:]], given)
    node.outputs[0].name, add.outputs[0].name = "y", "total"
    return function_of(name, inputs, [add, node], [node.outputs[0], add.outputs[0]], kinds, opset)
