"""Proof of fusion: what the report says of engines that the real TensorRT for RTX built, or refused to build."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from edgeformer.exporter.tensorrt.dropped_inputs import unused_inputs
from edgeformer.exporter.tensorrt.report import LogLine

from .attention_networks import DECODE, PREFILL, Spec, attention_graph, build, model_of, trt


@pytest.mark.parametrize(
    ("spec", "mask"),
    [
        (Spec(), "none"),
        (Spec(dtype="bfloat16"), "none"),
        (Spec(mask="boolean"), "boolean (batch, 1, q_len, kv_len)"),
        (Spec(mask="additive"), "additive (batch, 2, q_len, kv_len)"),
        (Spec(causal=True), "upper-left causal"),
        (Spec(heads=4, kv_heads=2, mask="boolean"), "boolean (batch, 1, q_len, kv_len)"),
        (Spec(heads=4, kv_heads=1), "none"),
        (Spec(head_dim=256), "none"),
    ],
    ids=lambda value: (
        "" if isinstance(value, str) else f"{value.dtype} {value.heads}/{value.kv_heads}x{value.head_dim}"
    ),
)
def test_a_fused_attention_is_told_with_its_kernel(tmp_path: Path, spec: Spec, mask: str) -> None:
    (attention,) = build(tmp_path, attention_graph(spec)).attentions()
    assert (attention.form, attention.fused) == ("native", True)
    assert attention.evidence == "the compiled engine has a kernel that does it all"
    assert attention.kernels
    assert all("mha" in kernel for kernel in attention.kernels)
    assert attention.dtype == spec.dtype
    assert attention.query == ("batch", spec.heads, "q_len", spec.head_dim)
    assert attention.key == ("batch", spec.kv_heads, "kv_len", spec.head_dim)
    assert attention.mask == mask
    assert attention.label == "layers.0.attention (attend_0)"


def test_prefill_and_decoding_have_kernels_of_their_own(tmp_path: Path) -> None:
    model = attention_graph(Spec(heads=4, kv_heads=4, mask="boolean"))
    (attention,) = build(tmp_path, model, profiles=[PREFILL, DECODE]).attentions()
    assert attention.fused
    assert [kernel.split("_")[1] for kernel in attention.kernels] == ["gemm", "gemv"]


@pytest.mark.parametrize(
    ("spec", "said", "remedy"),
    [
        (Spec(dtype="float32"), "float32, 2 heads of 64, no mask", "would fuse with float16 or bfloat16"),
        (Spec(head_dim=8), "float16, 2 heads of 8, no mask", "would fuse with head_dim 16"),
        (Spec(head_dim=264, mask="boolean"), "float16, 2 heads of 264, boolean mask", "would fuse with head_dim 256"),
        (
            Spec(heads=4, kv_heads=1, head_dim=512, dtype="bfloat16"),
            "bfloat16, 4 heads of 512 over 1 key and value heads, no mask",
            "would fuse with head_dim 256",
        ),
        (
            Spec(dtype="float32", head_dim=8, mask="additive", causal=False),
            "float32, 2 heads of 8, additive mask",
            "would fuse with float16 and head_dim 16 or bfloat16 and head_dim 16",
        ),
    ],
    ids=["float32", "head_dim 8", "head_dim 264", "head_dim 512", "float32 and head_dim 8"],
)
def test_a_refused_attention_is_named_with_what_would_fuse(tmp_path: Path, spec: Spec, said: str, remedy: str) -> None:
    explanation = build(tmp_path, attention_graph(spec)).explanation()
    assert explanation == (
        f"not every attention has a fused kernel in tensorrt_rtx {trt.__version__} for 8.9: "
        f"layers.0.attention (attend_0): {said}, {remedy}; --allow-unfused makes it of slower parts"
    )


def test_only_the_attentions_that_are_not_fused_are_named(tmp_path: Path) -> None:
    model = attention_graph(Spec(), Spec(head_dim=8), Spec(head_dim=8), Spec(head_dim=264, may_fall_apart=True))
    explanation = build(tmp_path, model).explanation()
    assert explanation is not None
    assert "layers.1.attention (attend_1) and 1 more like it: " in explanation
    assert "attend_0" not in explanation
    assert "attend_3" not in explanation


def test_a_profile_without_a_kernel_is_named_with_what_would_fuse(tmp_path: Path) -> None:
    """One query of two heads, in a batch that begins at one row: too little for the kernel of a single query."""
    explanation = build(tmp_path, attention_graph(Spec()), profiles=[PREFILL, DECODE]).explanation()
    assert explanation is not None
    assert (
        "layers.0.attention (attend_0): float16, 2 heads of 64, no mask, in profile 1 (batch 1:1:2, q_len 1:1:1, "
        in (explanation)
    )
    assert ", would fuse with q_len up to 2 there; --allow-unfused" in explanation


def test_a_type_that_a_gpu_lacks_is_named_with_the_gpu(tmp_path: Path) -> None:
    made = build(tmp_path, attention_graph(Spec(dtype="bfloat16")), capabilities=("7.5", "8.9"))
    assert made.explanation() == (
        "bfloat16 does not exist on compute capability 7.5: take another precision, or leave these GPUs out"
    )


def test_another_failure_is_not_explained_away(tmp_path: Path) -> None:
    made = build(tmp_path, attention_graph(Spec()))
    made.plan, made.log = None, [LogLine("error", "Error Code 2: OutOfMemory")]
    assert made.explanation() is None


def test_an_attention_that_may_fall_apart_is_unfused_where_it_did(tmp_path: Path) -> None:
    made = build(tmp_path, attention_graph(Spec(head_dim=8, may_fall_apart=True), Spec(may_fall_apart=True)))
    apart, whole = made.attentions()
    assert (apart.fused, apart.kernels) == (False, ())
    assert apart.evidence == "the compiled engine has no attention kernel for it"
    assert whole.fused is True
    assert made.report().fused == 1


def test_without_the_engines_layers_only_a_refusal_to_fall_apart_proves_fusion(tmp_path: Path) -> None:
    made = build(tmp_path, attention_graph(Spec(), Spec(may_fall_apart=True)))
    report = made.report(quietly=True)
    assert [attention.fused for attention in report.attentions] == [True, None]
    assert report.attentions[0].evidence == "TensorRT refuses to build it where it has no kernel of its own"
    assert report.attentions[1].evidence == "the layers of the compiled engine are not known"
    assert not report.compiled
    assert "ATTENTION_INPUT" in {layer.kind for layer in report.layers}


def primitive_graph(head_dim: int, between: str = "Add") -> onnx.ModelProto:
    """Scores, a mask that is added (or multiplied), a softmax, and the values: operators that a compiler may fuse."""
    half = TensorProto.FLOAT16
    inputs = [
        helper.make_tensor_value_info("query", half, ["batch", 2, "q_len", head_dim]),
        helper.make_tensor_value_info("keys", half, ["batch", 2, head_dim, "kv_len"]),
        helper.make_tensor_value_info("values", half, ["batch", 2, "kv_len", head_dim]),
        helper.make_tensor_value_info("bias", half, ["batch", 1, "q_len", "kv_len"]),
    ]
    nodes = [
        helper.make_node("MatMul", ["query", "keys"], ["scores"], name="score"),
        helper.make_node(between, ["scores", "bias"], ["biased"], name="bias_scores"),
        helper.make_node("Softmax", ["biased"], ["shares"], name="share"),
        helper.make_node("MatMul", ["shares", "values"], ["context"], name="mix"),
    ]
    output = helper.make_tensor_value_info("context", half, ["batch", 2, "q_len", head_dim])
    return model_of(nodes, inputs, [output])


@pytest.mark.parametrize(("head_dim", "fused"), [(64, True), (8, False)])
def test_the_pattern_of_operators_is_looked_up_in_the_engine(tmp_path: Path, head_dim: int, fused: bool) -> None:
    made = build(tmp_path, primitive_graph(head_dim))
    (attention,) = made.attentions()
    assert (attention.form, attention.node, attention.fused) == ("primitive", "share", fused)
    assert bool(attention.kernels) is fused
    assert attention.query == ("batch", 2, "q_len", head_dim)
    assert attention.key == ("batch", 2, "kv_len", head_dim)
    (unknown,) = made.report(quietly=True).attentions
    assert unknown.fused is None


def test_a_softmax_that_is_no_attention_is_not_told_as_one(tmp_path: Path) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], name="share")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["batch", 8]) for name in "xy"]
    assert build(tmp_path, model_of([node], shapes[:1], shapes[1:])).attentions() == ()


def test_a_report_tells_what_the_engine_is_made_of(tmp_path: Path) -> None:
    report = build(tmp_path, attention_graph(Spec(mask="boolean"))).report()
    assert report.compiled
    mha = next(layer for layer in report.layers if "mha" in layer.kernel)
    assert mha.nodes == ("attend_0",)
    assert mha.precision == "float16"
    assert "key_0" in {tensor.name for layer in report.layers for tensor in layer.inputs}
    assert report.weights == {"float16": 2 * 64}
    assert report.memory["build peak"] == 10**9
    assert report.memory["activations"] > 0
    assert [tensor.name for tensor in report.inputs] == ["query_0", "key_0", "value_0", "mask_0"]
    assert report.outputs[0].shape == ("batch", 2, "q_len", 64)
    assert report.unused_inputs == ()
    assert {line.severity for line in report.log} <= {"warning", "error", "internal error"}


def test_lengths_that_the_parser_drops_are_found(tmp_path: Path) -> None:
    made = build(tmp_path, attention_graph(Spec(lengths=True)))
    assert made.report().unused_inputs == (
        "input lengths_0 of the graph is read by nothing",
        "input lengths_0 of Attention attend_0 is ignored",
    )


def test_lengths_that_something_else_reads_are_found_as_well(tmp_path: Path) -> None:
    """The mask is made from the lengths, so the graph's input is in use; the node's is dropped all the same."""
    model = attention_graph(Spec(lengths=True))
    model.graph.node.append(helper.make_node("Neg", ["lengths_0"], ["negative"], name="negate"))
    model.graph.output.append(helper.make_tensor_value_info("negative", TensorProto.INT64, ["batch"]))
    assert build(tmp_path, model).report().unused_inputs == ("input lengths_0 of Attention attend_0 is ignored",)


def test_a_cache_that_is_written_in_place_is_told_and_nothing_of_it_is_dropped(tmp_path: Path) -> None:
    half = TensorProto.FLOAT16
    shapes = {"cache": ["batch", 2, 32, 64], "update": ["batch", 2, "q_len", 64], "present": ["batch", 2, 32, 64]}
    cache, update, present = (helper.make_tensor_value_info(name, half, dims) for name, dims in shapes.items())
    start = helper.make_tensor_value_info("start", TensorProto.INT64, ["batch"])
    node = helper.make_node(
        "TensorScatter", ["cache", "update", "start"], ["present"], name="write", axis=-2, mode="linear"
    )
    model = model_of([node], [cache, update, start], [present])
    made = build(tmp_path, model)
    (told,) = made.report().cache_updates
    assert (told.cache, told.output, told.dtype) == ("cache", "present", "float16")
    assert told.shape == ("batch", 2, 32, 64)
    assert unused_inputs(model, trt, made.network) == []
