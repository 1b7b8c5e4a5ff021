"""From the portable graph to a strongly typed graph that TensorRT parses."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir
from onnx_ir.passes import InPlacePass
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    RemoveUnusedNodesPass,
)

from edgeformer.exporter.ort_cpu.wanted_rows import WantedRows
from edgeformer.exporter.tensorrt.attention_native import NativeAttention
from edgeformer.exporter.tensorrt.attention_plugin import PluginAttention
from edgeformer.exporter.tensorrt.attention_primitive import PrimitiveAttention
from edgeformer.exporter.tensorrt.finite_masks import FiniteMasks
from edgeformer.exporter.tensorrt.next_tokens import NextTokens
from edgeformer.exporter.tensorrt.older_operators import OlderOperators
from edgeformer.exporter.tensorrt.static_capacity import StaticCapacity
from edgeformer.exporter.tensorrt.typed import Typed
from edgeformer.exporter.tensorrt.weight_only import WeightOnly

DType = Literal["float16", "bfloat16", "float32"]
Weights = Literal["int8", "int4"] | None
AttentionForm = Literal["native", "plugin", "plugin-aot", "primitive"]

# Operators that are younger than the usual opset, and the opset that brought them: a parser that reads no more than the
# usual one, as before TensorRT 10.15, does not know them.
OPSET_VERSION = 20
NEWER_OPERATORS = {"Attention": 23, "RMSNormalization": 23, "RotaryEmbedding": 23, "Swish": 24, "TensorScatter": 24}
IR_VERSION = 10  # of ONNX 1.16, which TensorRT 10.3 reads


def rewrite(
    model: ir.Model,
    role: str,
    *,
    dtype: DType,
    weights: Weights,
    attention: AttentionForm,
    capacity: int | None,
    fp32_accumulation: bool = False,
) -> tuple[str, ...]:
    """Rewrite a portable graph in place.

    Args:
        model: as `edgeformer.exporter.onnx_graphs` makes it, read by `external_weights.load_graph`.
        role: encoder or decoder.
        dtype: of weights, products, caches and the encoder's keys and values. Norms, sums of the residual stream and
            logits are float32.
        weights: how constant matrices are stored: None as dtype, int8 a scale for each output, int4 in blocks of 128.
        attention: native needs TensorRT 10.15 (`Attention`, `TensorScatter`); plugin is `attention_plugin`, and so is
            plugin-aot, whose graph is the same; primitive is the pattern of standard operators that older compilers
            fuse. With primitive, `present.*` are new tensors and must not share memory with `past_key_values.*`; with
            the others they must. Rotary positions and RMS norms stay operators of their own with native alone: TensorRT
            has no layers for them before 10.15 either.
        capacity: of caches; the dimension stays symbolic where it is None.
        fp32_accumulation: sum products inside native attention in float32 (TensorRT 11.3 and later).

    Returns:
        what a build report should say, a sentence each: matrices that could not be stored as asked.

    Raises:
        PreconditionError: the graph is not what a pass expects.
        TargetError: a weight is beyond the dtype's range.
    """
    narrow = ir.DataType[{"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT"}[dtype]]
    weight_only = WeightOnly(weights, narrow) if weights else None
    forms: dict[str, InPlacePass] = {
        "native": NativeAttention(fp32_accumulation=fp32_accumulation),
        "plugin": PluginAttention(),
        "plugin-aot": PluginAttention(),
        "primitive": PrimitiveAttention(),
    }
    passes: list[InPlacePass | None] = [
        WantedRows(),
        FiniteMasks(),
        weight_only,
        Typed(narrow),
        OlderOperators() if attention != "native" else None,
        forms[attention],
        NextTokens() if role == "decoder" else None,
        RemoveUnusedNodesPass(),
        CommonSubexpressionEliminationPass(),
        DeduplicateInitializersPass(),
        RemoveUnusedNodesPass(),
        StaticCapacity(capacity) if capacity is not None else None,
    ]
    for each in passes:
        if each is not None:
            each(model)
    declare_opset(model)
    return tuple(weight_only.notes) if weight_only else ()


def declare_opset(model: ir.Model) -> None:
    """The oldest opset that has the graph's operators: TensorRT 10.3 reads up to 20; blocks of int4 came with 21."""
    needed = {NEWER_OPERATORS.get(node.op_type, OPSET_VERSION) for node in model.graph}
    if any(node.op_type == "DequantizeLinear" and "block_size" in node.attributes for node in model.graph):
        needed.add(21)
    model.opset_imports[""] = max(needed)
    model.ir_version = IR_VERSION
