"""What is said of attentions that no build without a GPU has: plugins, and engines that fuse for some profiles only."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from edgeformer.exporter.tensorrt.attention_plugin import CACHED_ATTENTION, DOMAIN, SOURCE_ATTENTION
from edgeformer.exporter.tensorrt.network_attentions import attention_kernels, find_attentions, verdict
from edgeformer.exporter.tensorrt.report import Attention, Layer


class NoLayers:
    """A network that the parser made of operators that it does not tell: shapes are those of the graph."""

    num_layers = 0


def plugin_attention(op_type: str, inputs: dict[str, list[str | int]]) -> Attention:
    node = helper.make_node(op_type, [*inputs], ["context"], name="attend", domain=DOMAIN)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in inputs.items()]
    model = helper.make_model(
        helper.make_graph([node], "graph", values, []), opset_imports=[helper.make_opsetid(DOMAIN, 1)]
    )
    (attention,) = find_attentions(None, NoLayers(), model, ())
    return attention


def test_a_plugin_over_a_cache_is_told_with_the_cache_that_it_attends_to() -> None:
    new: list[str | int] = ["batch", 2, "q_len", 64]
    cache: list[str | int] = ["batch", 2, 128, 64]
    inputs = {"query": ["batch", 8, "q_len", 64], "key": new, "value": new, "past_key": cache, "past_value": cache}
    attention = plugin_attention(CACHED_ATTENTION, {**inputs, "cache_lengths": ["batch"]})
    assert (attention.form, attention.fused, attention.mask) == ("plugin", True, "lower-right causal and lengths")
    assert attention.query == ("batch", 8, "q_len", 64)
    assert attention.key == ("batch", 2, 128, 64)


def test_a_plugin_over_a_source_is_told_with_the_source() -> None:
    source: list[str | int] = ["batch", 8, "source_len", 64]
    inputs = {"query": ["batch", 8, "q_len", 64], "key": source, "value": source, "source_lengths": ["batch"]}
    attention = plugin_attention(SOURCE_ATTENTION, inputs)
    assert (attention.form, attention.fused, attention.mask) == ("plugin", True, "lengths")
    assert attention.key == ("batch", 8, "source_len", 64)


def layer(name: str, kernel: str, *nodes: str) -> Layer:
    return Layer(name, "kgen", kernel, "float16", (), (), nodes)


PREFILL = layer("_gemm_mha_v2_myl0_3", "_gemm_mha_v2_0x12ab", "score", "share", "mix")
DECODE = layer("_gemv_mha_v1_myl1_3", "_gemv_mha_v1_0x34cd", "share")
APART = layer("__myl_Soft_myl1_4", "__myl_Soft_0x9", "share")
ELSEWHERE = layer("_gemm_mha_v2_myl1_9", "_gemm_mha_v2_0x56ef", "another")


@pytest.mark.parametrize(
    ("engine", "kernels", "fused"),
    [
        ([PREFILL, DECODE, ELSEWHERE], ("_gemm_mha_v2", "_gemv_mha_v1"), True),
        ([PREFILL, APART, ELSEWHERE], ("_gemm_mha_v2", ""), False),
        ([APART, ELSEWHERE], (), False),
        ([], (), None),
    ],
    ids=["for every profile", "for one profile", "for none", "not known"],
)
def test_an_attention_is_fused_where_every_part_of_the_engine_has_its_kernel(
    engine: list[Layer], kernels: tuple[str, ...], fused: bool | None
) -> None:
    found = attention_kernels(["share"], engine)
    assert found == kernels
    assert verdict(found, engine)[0] is fused
