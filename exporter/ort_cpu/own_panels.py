"""Products in float32 by an operator of our own.

    x -> MatMul(W) -> Add(b)        becomes        PanelMatMul(x, panels, b)

with W in panels of 64 columns, the order in which that reads it. A table that a product reads turned, as a tied
vocabulary projection does, stays with ONNX Runtime: a file has it once.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import Product, products, register, take_over
from edgeformer.exporter.ort_cpu.own_operators import DOMAIN, carry, function_of

PANEL = 64


class OwnPanels(InPlacePass):
    """Ensures: no MatMul has a constant weight whose columns are a multiple of 64."""

    def call(self, model: ir.Model) -> PassResult:
        found = [product for product in products(model.graph) if product.weight.shape[1] % PANEL == 0]
        for product in found:
            self.rewrite(model.graph, product)
        if found:
            carry(model, panel_function(model.opset_imports[""]))
        return PassResult(model, modified=bool(found))

    def rewrite(self, graph: ir.Graph, product: Product) -> None:
        k, n = product.weight.shape
        panels = np.ascontiguousarray(product.weight.reshape(k, n // PANEL, PANEL).transpose(1, 0, 2))
        name = f"{product.name}.panels"
        weight = graph.initializers.get(name) or register(graph, name, panels)
        bias = product.bias or register(graph, f"{product.name}.{product.result.name}.bias", np.zeros(n, np.float32))
        new = ir.node("PanelMatMul", [product.x, weight, bias], domain=DOMAIN)
        graph.insert_before(product.add or product.node, new)
        take_over(product.result, new.outputs[0])


def panel_function(opset: int) -> ir.Function:
    x, weight, bias = inputs = [ir.val(name) for name in ("x", "weight", "bias")]
    by_input = ir.node("Transpose", [weight], {"perm": [1, 0, 2]})  # (k, n / 64, 64)
    shape = ir.node("Constant", [], {"value": ir.tensor(np.array([0, -1]))})
    matrix = ir.node("Reshape", [by_input.outputs[0], shape.outputs[0]])
    product = ir.node("MatMul", [x, matrix.outputs[0]])
    total = ir.node("Add", [product.outputs[0], bias])
    total.outputs[0].name = "y"
    return function_of("PanelMatMul", inputs, [by_input, shape, matrix, product, total], total.outputs, {}, opset)
