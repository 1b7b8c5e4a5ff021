"""TensorRT-RTX, which builds without a GPU, takes every graph: each attention fused, each cache updated in place."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from edgeformer.exporter.onnx_graphs import export_graphs
from edgeformer.exporter.tensorrt.graphs import rewrite
from edgeformer.models.configs.keys import Keys
from edgeformer.models.configs.llama import LlamaConfig
from edgeformer.models.llama import Llama

from .typed_graphs import typed

trt: Any = pytest.importorskip("tensorrt_rtx")

LIMITS = {"batch": (1, 2, 4), "q_len": (1, 8, 16), "source_len": (1, 8, 32), "n": (1, 1, 16)}


def build(model: ir.Model) -> tuple[Counter[str], bytes]:
    """Layers of the network, by kind, and the plan that was built of it without any attention falling apart."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    assert parser.parse(ir.to_proto(model).SerializeToString()), [
        parser.get_error(i).desc() for i in range(parser.num_errors)
    ]
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    profile = builder.create_optimization_profile()
    for value in model.graph.inputs:
        dims = [LIMITS[str(d.value)] if isinstance(d, ir.SymbolicDim) else (d,) * 3 for d in value.shape]
        profile.set_shape(value.name, *zip(*dims, strict=True))
    config.add_optimization_profile(profile)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    plan = builder.build_serialized_network(network, config)
    return Counter(str(network.get_layer(i).type).split(".")[-1] for i in range(network.num_layers)), bytes(plan)


def fused(plan: bytes) -> int:
    """How many kernels of fused multi-head attention a plan names: one for each attention."""
    return len(re.findall(rb"(?<!\w)_gemm_mha_v2(?!\w)", plan))


@pytest.mark.parametrize(
    ("dtype", "weights"), [("float16", None), ("bfloat16", None), ("float16", "int8"), ("float16", "int4")]
)
def test_a_step_builds_with_every_attention_fused(tiny_bundle: Path, dtype: str, weights: str | None) -> None:
    layers, plan = build(typed(tiny_bundle, "decoder", dtype=dtype, weights=weights, capacity=32))
    assert (layers["ATTENTION_INPUT"], layers["KV_CACHE_UPDATE"], fused(plan)) == (4, 4, 4)
    assert layers["DEQUANTIZE"] == (16 if weights else 0)


def test_an_encoder_builds_with_every_attention_fused(tiny_bundle: Path) -> None:
    layers, plan = build(typed(tiny_bundle, "encoder", weights="int8"))
    assert (layers["ATTENTION_INPUT"], fused(plan)) == (2, 2)


def test_the_primitive_form_is_fused_though_no_layer_says_attention(tiny_bundle: Path) -> None:
    layers, plan = build(typed(tiny_bundle, "decoder", attention="primitive", capacity=32))
    assert (layers["ATTENTION_INPUT"], layers["KV_CACHE_UPDATE"]) == (0, 0)
    assert (layers["SOFTMAX"], fused(plan)) == (4, 4)


def test_a_plan_names_no_fused_kernel_where_no_attention_fuses(tiny_bundle: Path) -> None:
    layers, plan = build(typed(tiny_bundle, "encoder", dtype="float32", attention="primitive"))
    assert (layers["SOFTMAX"], fused(plan)) == (2, 0)


def test_the_primitive_form_fuses_where_heads_share_keys() -> None:
    keys = {
        "vocab_size": 31, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "intermediate_size": 40, "max_position_embeddings": 64, "eos_token_id": 2,
    }  # fmt: skip
    graph = export_graphs(Llama(LlamaConfig.from_keys(Keys(keys))).eval())["decoder"]
    rewrite(graph, "decoder", dtype="float16", weights=None, attention="primitive", capacity=32)
    layers, plan = build(graph)
    assert (layers["SOFTMAX"], fused(plan)) == (2, 2)
