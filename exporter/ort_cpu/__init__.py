"""The portable graphs rewritten for ONNX Runtime's CPU kernels: one small pass a file."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import Sequential
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    RemoveUnusedNodesPass,
)

from edgeformer.exporter.ort_cpu.attention import CachedAttention, SourceAttention
from edgeformer.exporter.ort_cpu.projections import PackProjections
from edgeformer.exporter.ort_cpu.wanted_rows import WantedRows
from edgeformer.exporter.ort_cpu.weight_only import WeightOnly8Bit


def rewrite(model: ir.Model, precision: str) -> None:
    """Rewrite an encoder or step graph in place.

    Args:
        model: a portable graph, as `edgeformer.exporter.onnx_graphs` makes it.
        precision: fp32 or int8.
    """
    passes = [CachedAttention(), SourceAttention(), RemoveUnusedNodesPass(), PackProjections(), WantedRows()]
    if precision == "int8":
        passes.append(WeightOnly8Bit())
    passes += [
        RemoveUnusedNodesPass(),
        CommonSubexpressionEliminationPass(),
        DeduplicateInitializersPass(),
        RemoveUnusedNodesPass(),
    ]
    Sequential(*passes)(model)
