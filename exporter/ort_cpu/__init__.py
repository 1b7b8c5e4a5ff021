"""The portable graphs rewritten for ONNX Runtime's CPU kernels: one small pass a file."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, Sequential
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    RemoveUnusedNodesPass,
)

from edgeformer.exporter.ort_cpu.attention import CachedAttention, SourceAttention
from edgeformer.exporter.ort_cpu.given_positions import GivenPositions
from edgeformer.exporter.ort_cpu.projections import PackProjections
from edgeformer.exporter.ort_cpu.row_quantized import RowQuantized
from edgeformer.exporter.ort_cpu.wanted_rows import WantedRows
from edgeformer.exporter.ort_cpu.weight_only import WeightOnly8Bit

# int8: weights in blocks, which is fastest for few rows. int8-rows: activations of every product by rows, which is
# fastest for large batches.
QUANTIZATION: dict[str, type[InPlacePass]] = {
    "int8": WeightOnly8Bit,
    "int8-rows": RowQuantized,
}

# Portable graphs are opset 24 for Attention and TensorScatter; without those, older runtimes can read the graph too.
NEWER_OPERATORS = {"Attention", "TensorScatter", "RotaryEmbedding", "RMSNormalization"}
OPSET_VERSION, IR_VERSION = 21, 10


def rewrite(model: ir.Model, precision: str) -> None:
    """Rewrite a portable graph in place.

    Args:
        model: as `edgeformer.exporter.onnx_graphs` makes it.
        precision: fp32, int8 or int8-rows.
    """
    passes: list[InPlacePass] = [
        CachedAttention(), SourceAttention(), RemoveUnusedNodesPass(), GivenPositions(), PackProjections(), WantedRows()
    ]  # fmt: skip
    if quantization := QUANTIZATION.get(precision):
        passes.append(quantization())
    passes += [
        RemoveUnusedNodesPass(),
        CommonSubexpressionEliminationPass(),
        DeduplicateInitializersPass(),
        RemoveUnusedNodesPass(),
    ]
    Sequential(*passes)(model)
    if not any(node.op_type in NEWER_OPERATORS for node in model.graph):
        model.opset_imports[""], model.ir_version = OPSET_VERSION, IR_VERSION
