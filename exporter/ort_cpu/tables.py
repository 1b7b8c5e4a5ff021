"""Tables that a product reads as well, transposed: the embedding that is tied to the vocabulary projection.

    Transpose(table)   becomes   a constant of its own

Passes that store weights in codes see the product's weight only as a constant. In fp32 the table is better kept once:
ONNX Runtime transposes it when it loads.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import constant, register, take_over


class TransposedTables(InPlacePass):
    """Ensures: no Transpose of a constant matrix."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [node for node in graph if node.op_type == "Transpose" and is_matrix(node.inputs[0])]
        for node in found:
            table, result = node.inputs[0], node.outputs[0]
            values = constant(table)
            if table is None or values is None or result.is_graph_output():
                continue
            name = f"{table.name}.transposed"
            known = graph.initializers.get(name)
            take_over(result, known or register(graph, name, np.ascontiguousarray(values.numpy().T)))
            graph.remove(node, safe=True)
        return PassResult(model, modified=bool(found))


def is_matrix(value: ir.Value | None) -> bool:
    values = constant(value)
    return values is not None and len(values.shape) == 2
