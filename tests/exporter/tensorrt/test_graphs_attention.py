"""Attention in three forms: what none of them sees, and what is refused because TensorRT would drop it in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import PreconditionError

from edgeformer.exporter.tensorrt.attention_native import NativeAttention
from edgeformer.exporter.tensorrt.attention_plugin import PluginAttention
from edgeformer.exporter.tensorrt.attention_primitive import HIDDEN, PrimitiveAttention
from edgeformer.exporter.tensorrt.standard_attention import StandardAttention
from edgeformer.runtime import names
from edgeformer.runtime.bundle import read_manifest

from ..graphs import Arrays, only, operators, read, step_inputs
from .typed_graphs import FORMS, check, evaluate, typed


@pytest.fixture(scope="module")
def given(tiny_bundle: Path) -> Arrays:
    sizes = read_manifest(tiny_bundle).sizes
    return step_inputs(sizes, batch=3, source_len=5, q_len=2, capacity=12, wanted=2)


@pytest.fixture
def decoder(tiny_bundle: Path) -> ir.Model:
    return read(tiny_bundle, "decoder")


def hide(given: Arrays, sizes: names.Sizes, factor: float) -> Arrays:
    """The inputs with whatever no row may see multiplied: a cache's unwritten end, padding behind a source."""
    lengths = {name: given[name] for name in (names.CACHE_LENGTHS, names.SOURCE_LENGTHS)}
    hidden = dict(given)
    for kind, found in (
        (names.past_names, lengths[names.CACHE_LENGTHS] + given[names.INPUT_IDS].shape[1]),
        (names.encoded_names, lengths[names.SOURCE_LENGTHS]),
    ):
        for name in kind(sizes):
            behind = np.arange(given[name].shape[2]) >= found[:, None]
            hidden[name] = np.where(behind[:, None, :, None], given[name] * np.float32(factor), given[name])
    return hidden


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_behind_a_rows_length_is_never_seen(tiny_bundle: Path, given: Arrays, form: str) -> None:
    model = typed(tiny_bundle, "decoder", attention=form)
    sizes = read_manifest(tiny_bundle).sizes
    clean, dirty = (evaluate(model, hide(given, sizes, factor), "float16") for factor in (0, 300))
    for name in (names.LOGITS, names.NEXT_IDS, names.NEXT_LOG_PROBS):
        assert np.isfinite(dirty[name]).all()
        np.testing.assert_array_equal(dirty[name], clean[name], err_msg=name)


@pytest.mark.parametrize("form", FORMS)
def test_new_keys_are_written_behind_each_rows_length_and_nowhere_else(
    tiny_bundle: Path, given: Arrays, form: str
) -> None:
    found = evaluate(typed(tiny_bundle, "decoder", attention=form), given, "float16")
    sizes = read_manifest(tiny_bundle).sizes
    for past, present in zip(names.past_names(sizes), names.present_names(sizes), strict=True):
        before, after = given[past].astype(np.float16), found[present]
        for row, length in enumerate(given[names.CACHE_LENGTHS]):
            changed = (before[row] != after[row]).any((0, 2))
            assert list(np.flatnonzero(changed)) == [length, length + 1]


def test_the_additive_mask_is_finite_and_exact_in_each_type(tiny_bundle: Path) -> None:
    for dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        hidden = np.asarray(HIDDEN, dtype.numpy())
        assert float(hidden) == HIDDEN
        assert np.isfinite(hidden + np.asarray(-32000, dtype.numpy())), "a score as low as the mask"
    model = typed(tiny_bundle, "decoder", attention="primitive")
    assert len(only(model, "Where")) == 2, "one mask for all layers' caches, one for their sources"


def test_nothing_stands_between_the_operators_of_the_primitive_pattern(tiny_bundle: Path) -> None:
    model = typed(tiny_bundle, "decoder", attention="primitive")
    patterns: Counter[tuple[str, ...]] = Counter()
    for softmax in only(model, "Softmax"):
        add, behind = softmax.inputs[0].producer(), [node.op_type for node in softmax.outputs[0].consumers()]
        scores = add.inputs[0].producer()
        query, key = (value.producer().op_type for value in scores.inputs)
        patterns[(query, key, scores.op_type, add.op_type, *behind)] += 1
        assert softmax.outputs[0].dtype == ir.DataType.FLOAT16
    assert patterns == {("Mul", "Transpose", "MatMul", "Add", "MatMul"): 4}


def test_native_caches_go_from_network_input_to_network_output(tiny_bundle: Path) -> None:
    model = typed(tiny_bundle, "decoder", capacity=32)
    writes = only(model, "TensorScatter")
    assert len(writes) == 4
    assert all(write.inputs[0].is_graph_input() and write.outputs[0].is_graph_output() for write in writes)
    for attention in only(model, "Attention"):
        assert len(attention.inputs) == 4
        assert attention.inputs[3].dtype == ir.DataType.BOOL
        assert not {"is_causal", "softcap"} & set(attention.attributes)


def test_fp32_accumulation_stands_around_each_attention_and_changes_no_result_much(
    tiny_bundle: Path, given: Arrays
) -> None:
    model = typed(tiny_bundle, "decoder", fp32_accumulation=True)
    check(model)
    for attention in only(model, "Attention"):
        assert [value.producer().op_type for value in attention.inputs[:3]] == ["Cast"] * 3
        assert [node.op_type for node in attention.outputs[0].consumers()] == ["Cast"]
        assert attention.outputs[0].dtype == ir.DataType.FLOAT
    found, usual = evaluate(model, given, "float16"), evaluate(typed(tiny_bundle, "decoder"), given, "float16")
    np.testing.assert_allclose(found[names.LOGITS], usual[names.LOGITS], rtol=0, atol=0.02)


def test_standard_operators_take_the_place_of_the_plugins_ones(tiny_bundle: Path) -> None:
    model = typed(tiny_bundle, "decoder", attention="plugin")
    plugins = operators(model)
    assert (plugins["CachedAttention"], plugins["SourceAttention"]) == (2, 2)
    StandardAttention()(model)
    assert operators(model)["Attention"] == 4
    assert {node.domain for node in model.graph} == {""}


def causal(node: ir.Node) -> None:
    node.attributes["is_causal"] = ir.AttrInt64("is_causal", 1)


def lengths(node: ir.Node) -> None:
    node.resize_inputs(7)
    node.replace_input_with(6, node.graph.inputs[1])


def other_mask(node: ir.Node) -> None:
    node.replace_input_with(3, next(n for n in node.graph if n.op_type == "Expand").outputs[0])


def copied(node: ir.Node) -> None:
    key = node.inputs[1]
    copy = ir.node("Identity", [key])
    node.graph.insert_before(node, copy)
    node.replace_input_with(1, copy.outputs[0])


@pytest.mark.parametrize("change", [causal, lengths, other_mask, copied])
@pytest.mark.parametrize("form", [NativeAttention(fp32_accumulation=False), PluginAttention(), PrimitiveAttention()])
def test_an_attention_that_is_not_understood_is_refused_by_name(
    decoder: ir.Model, change: Callable[[ir.Node], None], form: ir.passes.InPlacePass
) -> None:
    attention = only(decoder, "Attention")[0]
    change(attention)
    with pytest.raises(PreconditionError, match=attention.name):
        form(decoder)
