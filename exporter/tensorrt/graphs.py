"""From the portable graph to a strongly typed graph that TensorRT parses."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

DType = Literal["float16", "bfloat16", "float32"]
Weights = Literal["int8", "int4"] | None
AttentionForm = Literal["native", "plugin", "primitive"]


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
        attention: native needs TensorRT 10.15 (`Attention`, `TensorScatter`); plugin is `attention_plugin`; primitive
            is the pattern of standard operators that older compilers fuse. With primitive, `present.*` are new
            tensors and must not share memory with `past_key_values.*`; with the others they must.
        capacity: of caches; the dimension stays symbolic where it is None.
        fp32_accumulation: sum products inside native attention in float32 (TensorRT 11.3 and later).

    Returns:
        what a build report should say, a sentence each: matrices that could not be stored as asked.

    Raises:
        PreconditionError: the graph is not what a pass expects (from within onnx_ir's PassError).
        TargetError: a weight does not fit the dtype.
    """
    raise NotImplementedError
