"""Products with weights of 4 or 8 bits by an operator of our own.

    MatMulNBits(x, codes, scales, bias)        becomes        BlockQuantizedMatMul(x, codes, scales, bias)

with codes and scales in the order in which that reads them. A product whose codes are a table's as well stays what it
is, so that they are kept once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.matching import constant, register, take_over
from edgeformer.exporter.ort_cpu.own_operators import COLUMNS, DOMAIN, QUAD, carry, function_of, passed_on
from edgeformer.exporter.ort_cpu.weight_only import INT8_ARITHMETIC

SIZES = ("K", "N", "block_size", "bits")
CHUNK, HALF_CHUNK = 64, 32  # activations that are rounded together, and the smallest block


class OwnBlockProducts(InPlacePass):
    """Ensures: no MatMulNBits has codes of its own, no zero points, and sizes that are multiples of 16 and 64."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        tables = [constant(node.inputs[0]) for node in graph if node.op_type == "GatherBlockQuantized"]
        found = [
            node for node in graph
            if node.op_type == "MatMulNBits" and can_be_own_product(node)
            and not any(are_the_same(constant(node.inputs[1]), table) for table in tables)
        ]  # fmt: skip
        for node in found:
            self.rewrite(graph, node)
        if found:
            carry(model, block_product_function(model.opset_imports[""]))
        return PassResult(model, modified=bool(found))

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> None:
        k, n, block, bits = (node.attributes[name].as_int() for name in SIZES)
        codes, scales = (tensor.numpy() for value in node.inputs[1:3] if (tensor := constant(value)) is not None)
        name = str(node.inputs[1].name if node.inputs[1] is not None else node.name)
        tiles = codes.reshape(n // COLUMNS, COLUMNS, -1, QUAD).transpose(0, 2, 1, 3)
        by_column = scales.reshape(n // COLUMNS, COLUMNS, k // block).transpose(0, 2, 1)
        bias = node.inputs[5] if len(node.inputs) > 5 else None
        inputs = [
            node.inputs[0],
            register(graph, f"{name}.tiles", np.ascontiguousarray(tiles)),
            register(graph, f"{name}.tile_scales", np.ascontiguousarray(by_column)),
            bias or register(graph, f"{name}.bias", np.zeros(n, np.float32)),
        ]
        attributes: dict[str, int | list[int]] = {
            "K": k, "N": n, "block_size": block, "bits": bits, "codes_shape": [n, k // block, block * bits // 8],
            "scales_shape": [n, k // block],
        }  # fmt: skip
        new = ir.node("BlockQuantizedMatMul", inputs, attributes, domain=DOMAIN, name=node.name)
        graph.insert_before(node, new)
        take_over(node.outputs[0], new.outputs[0])
        graph.remove(node, safe=True)


def can_be_own_product(node: ir.Node) -> bool:
    k, n, block, bits = (node.attributes[name].as_int() for name in SIZES)
    whole = n % COLUMNS == 0 and k % CHUNK == 0 and (block == HALF_CHUNK or block % CHUNK == 0)
    zero_points = len(node.inputs) > 3 and node.inputs[3] is not None
    return bits in (4, 8) and whole and not zero_points


def are_the_same(codes: ir.TensorProtocol | None, table: ir.TensorProtocol | None) -> bool:
    """Whether two tensors have the same numbers, whatever their shapes: a file holds them once."""
    if codes is None or table is None or codes.nbytes != table.nbytes:
        return False
    return np.array_equal(codes.numpy().reshape(-1), table.numpy().reshape(-1))


def block_product_function(opset: int) -> ir.Function:
    x, codes, scales, bias = inputs = [ir.val(name) for name in ("x", "codes", "scales", "bias")]
    kinds = dict.fromkeys(SIZES, ir.AttributeType.INT)
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
    given = [*passed_on(kinds), ir.AttrInt64("accuracy_level", INT8_ARITHMETIC)]
    y = then("MatMulNBits", [x, *by_column, None, None, bias], given, MICROSOFT)
    y.name = "y"
    return function_of("BlockQuantizedMatMul", inputs, nodes, [y], kinds | shapes, opset)
