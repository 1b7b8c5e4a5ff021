"""What the runtime must know of graphs that were rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from edgeformer.exporter.ort_cpu.matching import has_input
from edgeformer.runtime import names

# Portable graphs are opset 24 for Attention and TensorScatter; without those, older runtimes can read the graph too.
NEWER_OPERATORS = {"Attention", "TensorScatter", "RotaryEmbedding", "RMSNormalization"}
OPSET_VERSION, IR_VERSION = 21, 10


def lower_opset(model: ir.Model) -> None:
    """Say that a graph needs an older opset, where it holds nothing newer."""
    if not any(node.op_type in NEWER_OPERATORS and node.domain == "" for node in model.graph):
        model.opset_imports[""], model.ir_version = OPSET_VERSION, IR_VERSION
        for function in model.functions.values():
            function.opset_imports[""] = OPSET_VERSION


def least_version(graphs: Iterable[ir.Model]) -> str:
    """The onnxruntime that rewritten graphs need."""
    if any(model.opset_imports[""] > OPSET_VERSION for model in graphs):
        return "1.25"  # the first whose CPU kernels have opset 24's TensorScatter
    return "1.23"  # the oldest that this was run with


def shares_sources(graphs: Mapping[str, ir.Model]) -> bool:
    """Whether a source may serve several rows: all attentions over sources were rewritten."""
    decoder = graphs.get("decoder")
    if decoder is None or not has_input(decoder.graph, names.SOURCE_SHAPE):
        return False
    return not any(
        node.op_type == "Attention" and any(value is not None and value.is_graph_input() for value in node.inputs[1:3])
        for node in decoder.graph
    )


def needs_empty_caches(graphs: Mapping[str, ir.Model]) -> bool:
    """Whether several new tokens a row are taken by empty caches only, or in a batch of one."""
    decoder = graphs.get("decoder")
    return decoder is not None and any(node.op_type == "GroupQueryAttention" for node in decoder.graph)
