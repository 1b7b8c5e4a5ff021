"""Operators of `edgeformer.runtime.native`, and the functions that graphs carry for where those are not.

    GroupQueryAttention(query, key, value, past_key, past_value, last, total, cosines, sines)

of ONNX Runtime becomes our own of the same name, whose function is that of ONNX Runtime.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT, head_sizes

DOMAIN = "edgeformer"
# Attributes of the operator, and what they are where a node has none.
ATTENTION_DEFAULTS: dict[str, int | float] = {
    "scale": 0.0, "local_window_size": -1, "do_rotary": 0, "rotary_interleaved": 0,
}  # fmt: skip
ATTENTION_INPUTS = ("query", "key", "value", "past_key", "past_value", "last", "total", "cosines", "sines")
ATTENTION_OUTPUTS = ("y", "present_key", "present_value")
MOST_HEAD_DIM = 256


def carry(model: ir.Model, function: ir.Function) -> None:
    """Let a graph bring a function of ours along."""
    model.functions[function.identifier()] = function
    model.opset_imports[DOMAIN] = 1


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
                value.type, value.shape, name = old.type, old.shape, old.name
                old.replace_all_uses_with(value, replace_graph_outputs=True)
                old.name, value.name = f"{name}.before", name
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
    node = ir.Node(
        MICROSOFT, "GroupQueryAttention", inputs,
        [ir.RefAttr(name, name, kind) for name, kind in kinds.items()], num_outputs=3,
    )  # fmt: skip
    for value, name in zip(node.outputs, ATTENTION_OUTPUTS, strict=True):
        value.name = name
    imports = {"": opset, MICROSOFT: 1}
    graph = ir.Graph(inputs, node.outputs, nodes=[node], opset_imports=imports, name="GroupQueryAttention")
    given = [ir.Attr(name, kind, None) for name, kind in kinds.items()]
    return ir.Function(DOMAIN, "GroupQueryAttention", graph=graph, attributes=given)
