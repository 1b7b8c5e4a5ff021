"""Products of our own that end in a ReLU.

    RowQuantizedMatMul -> Relu        becomes        RowQuantizedMatMulRelu

and BlockQuantizedMatMul and PanelMatMul alike. The function of the new name calls that of the old one.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import only_user
from edgeformer.exporter.ort_cpu.matching import take_over
from edgeformer.exporter.ort_cpu.own_operators import DOMAIN, carry, function_of, passed_on

PRODUCTS = ("RowQuantizedMatMul", "BlockQuantizedMatMul", "PanelMatMul")


class OwnRelus(InPlacePass):
    """Ensures: no product of our own is read by a Relu alone."""

    def call(self, model: ir.Model) -> PassResult:
        graph, found = model.graph, set()
        for node in list(graph):
            if node.op_type not in PRODUCTS or (result := only_user(node.outputs[0], "Relu")) is None:
                continue
            new = ir.node(f"{node.op_type}Relu", node.inputs, node.attributes, domain=DOMAIN)
            graph.insert_before(node, new)
            take_over(result, new.outputs[0])
            found.add(node.op_type)
        for name in sorted(found):
            carry(model, with_relu(model.functions[DOMAIN, name, ""], model.opset_imports[""]))
        return PassResult(model, modified=bool(found))


def with_relu(function: ir.Function, opset: int) -> ir.Function:
    inputs = [ir.val(str(value.name)) for value in function.inputs]
    kinds = {name: attribute.type for name, attribute in function.attributes.items()}
    product = ir.Node(DOMAIN, function.name, inputs, passed_on(kinds))
    relu = ir.node("Relu", product.outputs)
    relu.outputs[0].name = "y"
    made = function_of(f"{function.name}Relu", inputs, [product, relu], relu.outputs, kinds, opset)
    made.opset_imports[DOMAIN] = 1
    return made
