"""The portable graphs rewritten for ONNX Runtime's CPU kernels: one small pass a file."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, Sequential
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    RemoveUnusedNodesPass,
)

from edgeformer.exporter.ort_cpu.activations import FusedActivations
from edgeformer.exporter.ort_cpu.cached_attention import CachedAttention
from edgeformer.exporter.ort_cpu.given_positions import GivenPositions
from edgeformer.exporter.ort_cpu.norms import SimplifiedNorms
from edgeformer.exporter.ort_cpu.own_attention import OwnAttention, OwnSourceAttention
from edgeformer.exporter.ort_cpu.own_gates import OwnGates
from edgeformer.exporter.ort_cpu.own_norms import OwnNorms
from edgeformer.exporter.ort_cpu.own_panels import OwnPanels
from edgeformer.exporter.ort_cpu.own_products import OwnBlockProducts
from edgeformer.exporter.ort_cpu.own_relus import OwnRelus
from edgeformer.exporter.ort_cpu.projections import PackProjections
from edgeformer.exporter.ort_cpu.rotary import take_out_rotations
from edgeformer.exporter.ort_cpu.row_quantized import RowQuantized
from edgeformer.exporter.ort_cpu.source_attention import SourceAttention
from edgeformer.exporter.ort_cpu.stored_half import DTYPES
from edgeformer.exporter.ort_cpu.tables import TablesInCodes, TransposedTables
from edgeformer.exporter.ort_cpu.traits import lower_opset
from edgeformer.exporter.ort_cpu.unused_inputs import UnusedInputs
from edgeformer.exporter.ort_cpu.wanted_early import WantedEarly
from edgeformer.exporter.ort_cpu.wanted_rows import WantedRows
from edgeformer.exporter.ort_cpu.weight_only import Recipe, WeightOnly
from edgeformer.runtime import names

# int8, int4: weights in blocks, which is fastest for few rows. int8-rows: activations of every product by rows, which
# is fastest for large batches; its tables alone are in blocks.
PLAIN = {"int8": Recipe(8), "int4": Recipe(4), "int8-rows": Recipe(8)}


def rewrite(model: ir.Model, precision: str, recipe: Recipe | None = None) -> dict[str, ir.Model]:
    """Rewrite a portable graph in place.

    Args:
        model: as `edgeformer.exporter.onnx_graphs` makes it.
        precision: fp32, int8, int4, auto or int8-rows; fp16 and bf16 are fp32 until `StoredInHalf`, which is the last
            to see a graph.
        recipe: how weights in blocks are stored, where it is not plainly; auto without one leaves them as they are.

    Returns:
        the graphs that it needs beside it, by their roles.
    """
    GivenPositions()(model)
    rotation = take_out_rotations(model)
    passes: list[InPlacePass] = [
        CachedAttention(), SourceAttention(), SimplifiedNorms(), FusedActivations(), RemoveUnusedNodesPass(),
        PackProjections(), WantedRows(), RemoveUnusedNodesPass(), WantedEarly(),
    ]  # fmt: skip
    if precision not in ("fp32", *DTYPES):
        passes.append(TransposedTables())
    recipe = recipe or PLAIN.get(precision)
    if recipe is not None:
        products = RowQuantized() if precision == "int8-rows" else WeightOnly(recipe)
        passes += [products, RemoveUnusedNodesPass(), TablesInCodes(recipe)]
    passes += [
        RemoveUnusedNodesPass(),
        CommonSubexpressionEliminationPass(),
        DeduplicateInitializersPass(),
        RemoveUnusedNodesPass(),
        UnusedInputs(),
    ]
    Sequential(*passes)(model)
    beside = {names.ROTATION: rotation} if rotation is not None else {}
    for graph in (model, *beside.values()):
        lower_opset(graph)
    return beside


def use_own_operators(model: ir.Model, precision: str) -> None:
    """Let a rewritten graph compute with operators of `edgeformer.runtime.native`, where they take what it has.

    Weights that are to be stored in 16 bits stay with ONNX Runtime.
    """
    passes: list[InPlacePass] = [OwnAttention(), OwnSourceAttention(), OwnNorms(), OwnGates(), OwnBlockProducts()]
    if precision not in DTYPES:
        passes.append(OwnPanels())
    passes += [OwnRelus(), RemoveUnusedNodesPass(), DeduplicateInitializersPass(), UnusedInputs()]
    Sequential(*passes)(model)
