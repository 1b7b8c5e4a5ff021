"""Attention by operators of our own.

    GroupQueryAttention(query, key, value, past_key, past_value, last, total, cosines, sines)

of ONNX Runtime becomes our own of the same name,

    Reshape(query, source_shape) -> MultiHeadAttention(., key, value, lengths) -> Reshape(row_shape)

becomes SourceAttention(query, key, value, lengths, source_shape, row_shape), and

    Split(packed) -> MultiHeadAttention(query, key, value, lengths)

becomes SelfAttention(packed, lengths).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT, head_sizes, only_user
from edgeformer.exporter.ort_cpu.matching import producer, take_over
from edgeformer.exporter.ort_cpu.own_operators import DOMAIN, carry, function_of, passed_on
from edgeformer.runtime import names

# Attributes of the operator, and what they are where a node has none.
ATTENTION_DEFAULTS: dict[str, int | float] = {
    "scale": 0.0, "local_window_size": -1, "do_rotary": 0, "rotary_interleaved": 0,
}  # fmt: skip
ATTENTION_INPUTS = ("query", "key", "value", "past_key", "past_value", "last", "total", "cosines", "sines")
ATTENTION_OUTPUTS = ("y", "present_key", "present_value")
MOST_HEAD_DIM = 256
MOST_INPUTS = 5  # of a MultiHeadAttention that adds nothing to its scores
HEAD_STEP = 8  # that the width of a head is a multiple of
KINDS = {"num_heads": ir.AttributeType.INT, "scale": ir.AttributeType.FLOAT}


class OwnAttention(InPlacePass):
    """Ensures: GroupQueryAttention is our own, but where a bias is added to its scores, or heads are too wide."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [node for node in graph if node.op_type == "GroupQueryAttention" and can_be_own(node)]
        for node in found:
            attributes = ATTENTION_DEFAULTS | {name: given.value for name, given in node.attributes.items()}
            new = ir.node("GroupQueryAttention", node.inputs, attributes, domain=DOMAIN, num_outputs=3, name=node.name)
            graph.insert_before(node, new)
            for old, value in zip(node.outputs, new.outputs, strict=True):
                take_over(old, value)
            graph.remove(node, safe=True)
        if found:
            carry(model, attention_function(model.opset_imports[""]))
        return PassResult(model, modified=bool(found))


def can_be_own(node: ir.Node) -> bool:
    sizes = head_sizes(node.inputs[3])
    more = node.inputs[len(ATTENTION_INPUTS) :]
    return sizes is not None and sizes[1] <= MOST_HEAD_DIM and all(value is None for value in more)


def attention_function(opset: int) -> ir.Function:
    inputs = [ir.val(name) for name in ATTENTION_INPUTS]
    kinds = {name: ir.AttributeType.FLOAT if name == "scale" else ir.AttributeType.INT for name in ATTENTION_DEFAULTS}
    kinds |= dict.fromkeys(("num_heads", "kv_num_heads"), ir.AttributeType.INT)
    node = ir.Node(MICROSOFT, "GroupQueryAttention", inputs, passed_on(kinds), num_outputs=3)
    for value, name in zip(node.outputs, ATTENTION_OUTPUTS, strict=True):
        value.name = name
    return function_of("GroupQueryAttention", inputs, [node], node.outputs, kinds, opset)


class OwnSourceAttention(InPlacePass):
    """Ensures: attention over sources of given lengths is our own, but where heads are too wide or too odd."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        nodes = [node for node in graph if node.op_type == "MultiHeadAttention" and sees_lengths(node)]
        found = [self.over_source(graph, node) or self.over_itself(graph, node) for node in nodes]
        for name, function in (("SourceAttention", source_function), ("SelfAttention", self_function)):
            if name in found:
                carry(model, function(model.opset_imports[""]))
        return PassResult(model, modified=any(found))

    def over_source(self, graph: ir.Graph, node: ir.Node) -> str | None:
        """The operator that took the place of one whose queries were sorted by sources."""
        query, key, value, _, lengths = node.inputs
        by_source, by_row = producer(query, "Reshape"), only_user(node.outputs[0], "Reshape")
        sizes = head_sizes(key)
        if by_source is None or by_row is None or sizes is None or not fits(sizes[1]):
            return None
        shapes = [by_source.inputs[1], by_row.producer().inputs[1]]  # type: ignore[union-attr]  # only_user has seen it
        if [shape.name for shape in shapes if shape is not None] != [names.SOURCE_SHAPE, names.ROW_SHAPE]:
            return None
        return replace(graph, node, "SourceAttention", [by_source.inputs[0], key, value, lengths, *shapes], by_row)

    def over_itself(self, graph: ir.Graph, node: ir.Node) -> str | None:
        """The operator that took the place of one whose inputs were the parts of one value."""
        split = producer(node.inputs[0], "Split")
        query = node.inputs[0]
        if split is None or query is None or query.shape is None or tuple(split.outputs) != tuple(node.inputs[:3]):
            return None
        width, heads = query.shape[-1], node.attributes["num_heads"].as_int()
        if not isinstance(width, int) or width % heads or not fits(width // heads):
            return None
        return replace(graph, node, "SelfAttention", [split.inputs[0], node.inputs[4]], node.outputs[0])


def sees_lengths(node: ir.Node) -> bool:
    """Whether it is a MultiHeadAttention whose only mask are the lengths of what it attends to."""
    has_lengths = len(node.inputs) == MOST_INPUTS and node.inputs[4] is not None
    return has_lengths and node.inputs[3] is None and set(node.attributes) <= set(KINDS)


def fits(head_dim: int) -> bool:
    return head_dim % HEAD_STEP == 0 and head_dim <= MOST_HEAD_DIM


def replace(graph: ir.Graph, node: ir.Node, name: str, inputs: list[ir.Value | None], result: ir.Value) -> str:
    attributes = {"scale": 0.0} | {key: given.value for key, given in node.attributes.items()}
    new = ir.node(name, inputs, attributes, domain=DOMAIN)
    graph.insert_before(node, new)
    take_over(result, new.outputs[0])
    return name


def source_function(opset: int) -> ir.Function:
    query, key, value, lengths, source_shape, row_shape = inputs = [
        ir.val(name) for name in ("query", "key", "value", "lengths", "source_shape", "row_shape")
    ]
    by_source = ir.node("Reshape", [query, source_shape])
    node = multi_head([by_source.outputs[0], key, value, None, lengths])
    by_row = ir.node("Reshape", [node.outputs[0], row_shape])
    by_row.outputs[0].name = "y"
    return function_of("SourceAttention", inputs, [by_source, node, by_row], by_row.outputs, KINDS, opset)


def self_function(opset: int) -> ir.Function:
    packed, lengths = inputs = [ir.val(name) for name in ("packed", "lengths")]
    split = ir.node("Split", [packed], {"axis": -1, "num_outputs": 3}, num_outputs=3)
    node = multi_head([*split.outputs, None, lengths])
    node.outputs[0].name = "y"
    return function_of("SelfAttention", inputs, [split, node], node.outputs, KINDS, opset)


def multi_head(inputs: Sequence[ir.Value | None]) -> ir.Node:
    """ONNX Runtime's operator, whose scale of 0 means the usual one as well."""
    return ir.Node(MICROSOFT, "MultiHeadAttention", inputs, passed_on(KINDS))
