"""Computing what stands behind the last attention for the wanted positions alone.

    attended -> MatMul -> Add -> norm -> feed-forward -> ... -> GatherND(wanted) -> MatMul -> logits
    residual ------------'

becomes

    attended -> GatherND(wanted) -> MatMul -> Add -> norm -> feed-forward -> ... -> MatMul -> logits
    residual -> GatherND(wanted) ------------'

so that a long prompt, of which one position's logits are wanted, does not pass through most of the last layer.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import constant, graph_input, has_input, register_once
from edgeformer.runtime import names

ALIKE = {"Add", "Sub", "Mul", "Div", "MatMul"}  # of numbers that belong to the same token, or are the same for all
ALONE = {"Sigmoid", "Tanh", "Relu", "Gelu", "FastGelu", "QuickGelu", "Cast", "Neg"}
LAST_AXIS = {"LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization", "Split"}


class WantedEarly(InPlacePass):
    """In a language model, nothing that looks at each token alone comes before the wanted ones are picked.

    Requires: `WantedRows`, and no unused nodes. Ensures: that, where all that it looks at is (batch, q_len, width).
    After an encoder a prompt is one token, so that nothing would be saved.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        if has_input(graph, names.SOURCE_LENGTHS):
            return PassResult(model, modified=False)
        moved = [move_up(graph, node) for node in list(graph) if picks_wanted(node)]
        return PassResult(model, modified=any(moved))


def picks_wanted(node: ir.Node) -> bool:
    if node.op_type != "GatherND" or node.inputs[1] is None:
        return False
    unsqueeze = node.inputs[1].producer()
    at = unsqueeze.inputs[0] if unsqueeze is not None and unsqueeze.op_type == "Unsqueeze" else None
    batch_dims = node.attributes.get("batch_dims")
    return at is not None and at.name == names.LOGITS_AT and batch_dims is not None and batch_dims.as_int() == 1


def move_up(graph: ir.Graph, gather: ir.Node) -> bool:
    """Whether a GatherND found a place further up."""
    data = gather.inputs[0]
    region = tokens_of(graph, gather)
    borders = {
        value: node for node in reversed(region) for value in node.inputs
        if value is not None and constant(value) is None and value.producer() not in region
    }  # fmt: skip
    if data is None or not region or not all(is_of_tokens(value) for value in borders):
        return False
    axis = register_once(graph, "last_axis", [-1])
    unsqueeze = ir.node("Unsqueeze", [graph_input(graph, names.LOGITS_AT), axis])
    graph.insert_before(graph[0], unsqueeze)
    for value, first in borders.items():
        picked = ir.node("GatherND", [value, unsqueeze.outputs[0]], {"batch_dims": 1})
        picked.outputs[0].type, picked.outputs[0].shape = value.type, of_wanted(value)
        graph.insert_before(first, picked)
        for node in region:
            for i, read in enumerate(node.inputs):
                if read is value:
                    node.replace_input_with(i, picked.outputs[0])
    for node in region:
        for output in node.outputs:
            output.shape = of_wanted(output)
    gather.outputs[0].replace_all_uses_with(data)
    graph.remove(gather, safe=True)
    return True


def tokens_of(graph: ir.Graph, gather: ir.Node) -> dict[ir.Node, None]:
    """What looks at each token alone and is used for nothing but what is picked, in the order of the graph."""
    region: dict[ir.Node, None] = {gather: None}
    for node in reversed(list(graph)):
        users = [user for output in node.outputs for user in output.consumers()]
        inside = bool(users) and all(user in region for user in users)
        if inside and looks_at_each_token(node) and not any(output.is_graph_output() for output in node.outputs):
            region[node] = None
    del region[gather]
    return dict.fromkeys(reversed(region))


def looks_at_each_token(node: ir.Node) -> bool:
    """Whether each token's outputs come from that token's inputs alone."""
    if node.op_type in LAST_AXIS:
        axis, rest = node.attributes.get("axis"), node.inputs[1:]
        return axis is not None and axis.as_int() == -1 and all(constant(value) is not None for value in rest)
    if node.op_type == "MatMul":
        weight = constant(node.inputs[1])
        return weight is not None and len(weight.shape) == 2
    if node.op_type in ALIKE:
        tensors = [constant(value) for value in node.inputs]
        return all(tensor is None or len(tensor.shape) <= 1 for tensor in tensors)
    return node.op_type in ALONE


def is_of_tokens(value: ir.Value) -> bool:
    """Whether it is (batch, q_len, width)."""
    shape = value.shape
    return shape is not None and len(shape) == 3 and [str(dim) for dim in shape[:2]] == ["batch", "q_len"]


def of_wanted(value: ir.Value) -> ir.Shape | None:
    """The shape of (batch, q_len, width) where only n positions are left."""
    return None if value.shape is None else ir.Shape((value.shape[0], "n", *value.shape[2:]))
