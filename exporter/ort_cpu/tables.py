"""Tables of embeddings in codes, and those that a product reads as well: the vocabulary projection that is tied to one.

    Transpose(table)     becomes   a constant of its own
    Gather(table, ids)   becomes   GatherBlockQuantized(codes, ids, scales)

Passes that store weights in codes see the product's weight only as a constant. In fp32 the table is better kept once:
ONNX Runtime transposes it when it loads.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.block_codes import quantize
from edgeformer.exporter.ort_cpu.matching import constant, register, take_over
from edgeformer.exporter.ort_cpu.weight_only import Recipe

TABLE_ROWS = 1024  # smaller tables are not worth an operator


class TransposedTables(InPlacePass):
    """Ensures: no Transpose that turns a constant matrix, but for one that is an output of the graph."""

    def call(self, model: ir.Model) -> PassResult:
        turned = [self.rewrite(model.graph, node) for node in list(model.graph) if node.op_type == "Transpose"]
        return PassResult(model, modified=any(turned))

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> bool:
        table, result = node.inputs[0], node.outputs[0]
        values, order = constant(table), node.attributes.get("perm")
        if table is None or values is None or len(values.shape) != 2 or result.is_graph_output():
            return False
        if order is not None and list(order.as_ints()) != [1, 0]:
            return False
        name = f"{table.name}.transposed"
        known = graph.initializers.get(name)
        take_over(result, known or register(graph, name, np.ascontiguousarray(values.numpy().T)))
        graph.remove(node, safe=True)
        return True


class TablesInCodes(InPlacePass):
    """Ensures: every large table whose rows a block divides has 8 bits, whatever products have.

    Few of its rows are read, and what is lost there is lost for all layers.
    """

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe

    def call(self, model: ir.Model) -> PassResult:
        found = [node for node in model.graph if node.op_type == "Gather" and not node.domain]
        modified = [self.rewrite(model.graph, node) for node in found]
        if any(modified):
            model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=any(modified))

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> bool:
        table, ids = node.inputs
        values, axis = constant(table), node.attributes.get("axis")
        if table is None or table.name is None or values is None or (axis is not None and axis.as_int() != 0):
            return False
        if len(values.shape) != 2 or values.dtype != ir.DataType.FLOAT or values.shape.numpy()[0] < TABLE_ROWS:
            return False
        rows = values.numpy()  # (tokens, d_model): the weight of a product, transposed
        scheme = self.recipe.scheme(table.name, rows.shape[1])
        if scheme is None:
            return False
        scheme = dataclasses.replace(scheme, bits=8, symmetric=True)  # a row that is read costs next to nothing
        codes = quantize(rows.T, scheme)
        data = register(graph, f"{table.name}.codes", codes.packed().reshape(len(rows), -1))
        scales = register(graph, f"{table.name}.scales", codes.scales)
        attributes = {"bits": scheme.bits, "block_size": scheme.block, "gather_axis": 0, "quantize_axis": 1}
        new = ir.node("GatherBlockQuantized", [data, ids, scales], attributes, domain=MICROSOFT, name=node.name)
        graph.insert_before(node, new)
        take_over(node.outputs[0], new.outputs[0])
        return True
