"""The portable graphs rewritten for ONNX Runtime's CUDA kernels: those of `ort_cpu`, in 16 bits."""

from __future__ import annotations

import onnx_ir as ir

from edgeformer.exporter import ort_cpu
from edgeformer.exporter.ort_cpu.traits import IR_VERSION, OPSET_VERSION
from edgeformer.exporter.ort_cuda.half_precision import HalfPrecision
from edgeformer.runtime import names


def rewrite(model: ir.Model) -> dict[str, ir.Model]:
    """Rewrite a portable graph in place.

    Args:
        model: as `edgeformer.exporter.onnx_graphs` makes it.

    Returns:
        the graphs that it needs beside it, by their roles. They stay in 32 bits: 16 cannot count positions.
    """
    beside = ort_cpu.rewrite(model, "fp32")
    HalfPrecision()(model)
    return beside


def selection(sizes: names.Sizes) -> ir.Model:
    """A graph that picks rows of caches, so that a beam search moves no cache to the host.

    inputs   past_key_values.{i}.key|value   (batch, heads, length, head_dim), float16
             selected                        (new_batch,), int64
    outputs  present.{i}.key|value           (new_batch, heads, length, head_dim)
    """
    half, shape = ir.DataType.FLOAT16, ir.Shape(("batch", "heads", "length", sizes.head_dim))
    chosen = ir.Shape(("new_batch", "heads", "length", sizes.head_dim))
    rows = ir.val(names.SELECTED, ir.DataType.INT64, ir.Shape(("new_batch",)))
    caches = [ir.val(name, half, shape) for name in names.past_names(sizes)]
    nodes = [ir.node("Gather", [cache, rows], {"axis": 0}) for cache in caches]
    for node, name in zip(nodes, names.present_names(sizes), strict=True):
        node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = name, half, chosen
    outputs = [node.outputs[0] for node in nodes]
    graph = ir.Graph([*caches, rows], outputs, nodes=nodes, opset_imports={"": OPSET_VERSION}, name="selection")
    return ir.Model(graph, ir_version=IR_VERSION)
