"""Weights, activations and caches in 16 bits; logits stay in 32."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.stored_half import rounded
from edgeformer.runtime import names

MOST = float(np.finfo(np.float16).max)
LEAST = np.finfo(np.float32).min


class HalfPrecision(InPlacePass):
    """Everything in float32 becomes float16.

    Requires: a graph of `edgeformer.runtime.names`, weights that float16 can hold. Ensures: only the logits are
    float32. LayerNormalization and softmax sum in float32 inside ONNX Runtime's kernels, whatever their inputs are.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        for value in graph.initializers.values():
            self.round(value)
        for node in graph:
            to = node.attributes.get("to")
            if node.op_type == "Cast" and to is not None and to.as_int() == ir.DataType.FLOAT:
                node.attributes["to"] = ir.AttrInt64("to", ir.DataType.FLOAT16)
            for output in node.outputs:
                self.retype(output)
        for value in graph.inputs:
            self.retype(value)
        self.keep_logits(graph)
        return PassResult(model, modified=True)

    def round(self, value: ir.Value) -> None:
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.FLOAT:
            return
        array = tensor.numpy()
        array = np.where(array == LEAST, -MOST, array)  # what a mask adds to scores that nobody is to see
        value.const_value = ir.tensor(rounded(array, ir.DataType.FLOAT16, str(value.name)), name=value.name)
        self.retype(value)

    def retype(self, value: ir.Value) -> None:
        if value.dtype == ir.DataType.FLOAT:
            value.dtype = ir.DataType.FLOAT16

    def keep_logits(self, graph: ir.Graph) -> None:
        """Cast the logits to float32 behind the product that makes them."""
        for i, half in enumerate(graph.outputs):
            producer = half.producer()
            if half.name != names.LOGITS or producer is None:
                continue
            cast = ir.node("Cast", [half], {"to": ir.DataType.FLOAT})
            graph.insert_after(producer, cast)
            logits = cast.outputs[0]
            half.name, logits.name = f"{names.LOGITS}.half", names.LOGITS
            logits.dtype, logits.shape = ir.DataType.FLOAT, half.shape
            graph.outputs[i] = logits
