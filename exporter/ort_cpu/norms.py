"""RMS norms by the name that ONNX Runtime has had for them all along, so that no graph needs opset 23 for them.

RMSNormalization        becomes        SimplifiedLayerNormalization

It is the same kernel. `SkipSimplifiedLayerNormalization`, which adds before it normalizes, is as fast for one token as
the two operators, and slower for more.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import take_over


class SimplifiedNorms(InPlacePass):
    """Ensures: there is no RMSNormalization over the last axis."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [node for node in graph if node.op_type == "RMSNormalization" and over_last_axis(node)]
        for node in found:
            epsilon = node.attributes.get("epsilon")
            attributes: dict[str, int | float] = {
                "axis": -1, "epsilon": epsilon.as_float() if epsilon is not None else 1e-5, "stash_type": 1,
            }  # fmt: skip
            new = ir.node("SimplifiedLayerNormalization", node.inputs, attributes, name=node.name)
            graph.insert_before(node, new)
            take_over(node.outputs[0], new.outputs[0])
        return PassResult(model, modified=bool(found))


def over_last_axis(node: ir.Node) -> bool:
    axis, shape = node.attributes.get("axis"), node.outputs[0].shape
    last = {-1} if shape is None else {-1, len(shape) - 1}
    return axis is None or axis.as_int() in last
