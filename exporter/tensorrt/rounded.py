"""A typed graph in float32, with every result rounded as the narrow type rounds it.

A GPU multiplies float16 or bfloat16, sums in float32 and rounds the result. So does this graph, on any processor, for
which ONNX Runtime has few kernels of float16 and hardly one of bfloat16: casts to the narrow type and back stand behind
every operator that computes in it, and inputs and outputs are float32 that hold narrow numbers.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.tensorrt.typed import MOVES

NARROW = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
WRITES = {"ScatterND", "TensorScatter"}  # they copy numbers that are rounded already


class Rounded(InPlacePass):
    """Requires: a graph of standard operators, its types known. Ensures: no value but a rounding is narrow."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        for value in (*graph.inputs, *graph.initializers.values()):
            if value.dtype in NARROW:
                widen(value)
        modified = False
        for node in list(graph):
            for output in node.outputs:
                narrow = output.dtype
                if narrow not in NARROW or narrow is None:
                    continue
                output.type, modified = ir.TensorType(ir.DataType.FLOAT), True
                if node.op_type == "Cast":
                    node.attributes["to"] = ir.AttrInt64("to", ir.DataType.FLOAT)
                if node.op_type not in MOVES | WRITES:
                    rounded(graph, output, narrow)
        return PassResult(model, modified=modified)


def widen(value: ir.Value) -> None:
    tensor = value.const_value
    value.type = ir.TensorType(ir.DataType.FLOAT)
    if tensor is not None:
        value.const_value = ir.tensor(tensor.numpy().astype(np.float32), name=value.name)


def rounded(graph: ir.Graph, value: ir.Value, narrow: ir.DataType) -> None:
    """Let all that reads value read it rounded."""
    node = value.producer()
    assert node is not None
    tape = ir.tape.Tape()
    down = tape.op("Cast", [value], {"to": narrow})
    up = tape.op("Cast", [down], {"to": ir.DataType.FLOAT})
    down.dtype, up.dtype, down.shape, up.shape = narrow, ir.DataType.FLOAT, value.shape, value.shape
    graph.insert_after(node, tape.nodes)
    if value.is_graph_output():
        up.name, value.name = value.name, f"{value.name}.exact"
    value.replace_all_uses_with(up, replace_graph_outputs=True)
    tape.nodes[0].replace_input_with(0, value)
