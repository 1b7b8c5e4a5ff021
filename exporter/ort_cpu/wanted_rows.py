"""Picking the positions whose logits are wanted.

torch's indexing exports to a grid of (row, position) pairs, ten nodes; `GatherND` with one batch dimension takes the
positions as they are.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import ancestry, graph_input, register, take_over
from edgeformer.runtime import names


class WantedRows(InPlacePass):
    """Requires: the step graph. Ensures: logits_at is read by one GatherND with batch_dims 1."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        modified = False
        for node in list(graph):
            if node.op_type != "GatherND" or names.LOGITS_AT not in ancestry(node.inputs[1])[1]:
                continue
            axis = register(graph, "last_axis", np.array([-1]))
            tape = ir.tape.Tape()
            at = tape.op("Unsqueeze", [graph_input(graph, names.LOGITS_AT), axis])
            rows = tape.op("GatherND", [node.inputs[0], at], {"batch_dims": 1})
            graph.insert_before(node, tape.nodes)
            take_over(node.outputs[0], rows)
            graph.remove(node, safe=True)
            modified = True
        return PassResult(model, modified=modified)
