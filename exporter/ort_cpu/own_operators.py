"""Operators of `edgeformer.runtime.native`, and the functions that graphs carry for where those are not.

    GroupQueryAttention(query, key, value, past_key, past_value, last, total, cosines, sines)

of ONNX Runtime becomes our own of the same name, and

    MatMulNBits(x, codes, scales, bias)        becomes        BlockQuantizedMatMul(x, codes, scales, bias)

with codes and scales in the order in which that reads them. The functions are ONNX Runtime's operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT, head_sizes
from edgeformer.exporter.ort_cpu.matching import constant, register, take_over

DOMAIN = "edgeformer"
# Attributes of the operator, and what they are where a node has none.
ATTENTION_DEFAULTS: dict[str, int | float] = {
    "scale": 0.0, "local_window_size": -1, "do_rotary": 0, "rotary_interleaved": 0,
}  # fmt: skip
ATTENTION_INPUTS = ("query", "key", "value", "past_key", "past_value", "last", "total", "cosines", "sines")
ATTENTION_OUTPUTS = ("y", "present_key", "present_value")
MOST_HEAD_DIM = 256
COLUMNS, QUAD = 16, 4  # of a weight: so many columns of the product lie side by side, with a quad of their inputs each
CHUNK, HALF_CHUNK, OCTET = 64, 32, 2 * QUAD  # two inputs of 4 bits share a byte


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


class OwnBlockProducts(InPlacePass):
    """Ensures: no MatMulNBits has 4 bits, no zero points, and a weight whose sizes are multiples of 16 and 64."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [node for node in graph if node.op_type == "MatMulNBits" and can_be_own_product(node)]
        for node in found:
            self.rewrite(graph, node)
        if found:
            carry(model, block_product_function(model.opset_imports[""]))
        return PassResult(model, modified=bool(found))

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> None:
        k, n, block = (node.attributes[name].as_int() for name in ("K", "N", "block_size"))
        codes, scales = (tensor.numpy() for value in node.inputs[1:3] if (tensor := constant(value)) is not None)
        name = str(node.inputs[1].name if node.inputs[1] is not None else node.name)
        tiles = codes.reshape(n // COLUMNS, COLUMNS, k // OCTET, QUAD).transpose(0, 2, 1, 3)
        by_column = scales.reshape(n // COLUMNS, COLUMNS, k // block).transpose(0, 2, 1)
        bias = node.inputs[5] if len(node.inputs) > 5 else None
        inputs = [
            node.inputs[0],
            register(graph, f"{name}.tiles", np.ascontiguousarray(tiles)),
            register(graph, f"{name}.tile_scales", np.ascontiguousarray(by_column)),
            bias or register(graph, f"{name}.bias", np.zeros(n, np.float32)),
        ]
        attributes: dict[str, int | list[int]] = {
            "K": k, "N": n, "block_size": block, "codes_shape": [n, k // block, block // 2],
            "scales_shape": [n, k // block],
        }  # fmt: skip
        new = ir.node("BlockQuantizedMatMul", inputs, attributes, domain=DOMAIN, name=node.name)
        graph.insert_before(node, new)
        take_over(node.outputs[0], new.outputs[0])
        graph.remove(node, safe=True)


def can_be_own_product(node: ir.Node) -> bool:
    k, n, bits, block = (node.attributes[name].as_int() for name in ("K", "N", "bits", "block_size"))
    whole = n % COLUMNS == 0 and k % CHUNK == 0 and (block == HALF_CHUNK or block % CHUNK == 0)
    zero_points = len(node.inputs) > 3 and node.inputs[3] is not None
    return bits == 4 and whole and not zero_points


def block_product_function(opset: int) -> ir.Function:
    x, codes, scales, bias = inputs = [ir.val(name) for name in ("x", "codes", "scales", "bias")]
    kinds = dict.fromkeys(("K", "N", "block_size"), ir.AttributeType.INT)
    shapes = dict.fromkeys(("codes_shape", "scales_shape"), ir.AttributeType.INTS)
    nodes: list[ir.Node] = []

    def then(
        op_type: str, given: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], domain: str = ""
    ) -> ir.Value:
        nodes.append(ir.Node(domain, op_type, given, attributes))
        return nodes[-1].outputs[0]

    by_column = []
    for value, order, shape in ((codes, [0, 2, 1, 3], "codes_shape"), (scales, [0, 2, 1], "scales_shape")):
        turned = then("Transpose", [value], [ir.AttrInt64s("perm", order)])
        wanted = then("Constant", [], [ir.RefAttr("value_ints", shape, ir.AttributeType.INTS)])
        by_column.append(then("Reshape", [turned, wanted], []))
    given = [*passed_on(kinds), ir.AttrInt64("bits", 4), ir.AttrInt64("accuracy_level", 4)]
    y = then("MatMulNBits", [x, *by_column, None, None, bias], given, MICROSOFT)
    y.name = "y"
    return function_of("BlockQuantizedMatMul", inputs, nodes, [y], kinds | shapes, opset)


def passed_on(kinds: Mapping[str, ir.AttributeType]) -> list[ir.Attr]:
    """Attributes of a node in a function that are those of the function."""
    return [ir.RefAttr(name, name, kind) for name, kind in kinds.items()]


def function_of(
    name: str, inputs: Sequence[ir.Value], nodes: Sequence[ir.Node], outputs: Sequence[ir.Value],
    kinds: Mapping[str, ir.AttributeType], opset: int,
) -> ir.Function:  # fmt: skip
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": opset, MICROSOFT: 1}, name=name)
    return ir.Function(
        DOMAIN, name, graph=graph, attributes=[ir.Attr(name, kind, None) for name, kind in kinds.items()]
    )
