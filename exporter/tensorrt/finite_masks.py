"""Masks that are added to the scores, made finite in every type.

What hides a position is often the least float32, which float16 holds as minus infinity; and where a query sees nothing
in one block of keys, a kernel that takes a softmax block by block makes NaN of infinities.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import register

# A power of two, exact in float16 and bfloat16. It has a weight of exactly 0 beside any score that a narrow type can
# hold next to it.
HIDDEN = -32768.0


class FiniteMasks(InPlacePass):
    """Requires: a float32 graph. Ensures: no mask that is added to scores is below HIDDEN."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        users: dict[ir.Value, list[ir.Node]] = {}
        for node in graph:
            mask = node.inputs[3] if node.op_type == "Attention" and len(node.inputs) > 3 else None
            if mask is not None and mask.dtype == ir.DataType.FLOAT:
                users.setdefault(mask, []).append(node)
        for mask, nodes in users.items():
            least = register(graph, f"{mask.name}.least", np.array(HIDDEN, np.float32))
            node = ir.node("Max", [mask, least], name=f"{mask.name}.finite")
            finite = node.outputs[0]
            finite.type, finite.shape = mask.type, mask.shape
            graph.insert_before(nodes[0], node)
            for user in nodes:
                user.replace_input_with(3, finite)
        return PassResult(model, modified=bool(users))
