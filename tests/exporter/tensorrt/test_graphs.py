"""The graphs that TensorRT gets compute what the portable graph does, whatever their types and form of attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from edgeformer.exporter.tensorrt.graphs import rewrite
from edgeformer.exporter.tensorrt.verification import verification_graph
from edgeformer.runtime import names
from edgeformer.runtime.bundle import read_manifest

from ..graphs import Arrays, encoder_inputs, operators, read, run, step_inputs, within
from .typed_graphs import FORMS, check, evaluate, typed

# Ragged rows whose caches hold tokens already, with padded columns; the first step over empty caches; one new token.
STEPS: dict[str, dict[str, Any]] = {
    "ragged": {"batch": 3, "source_len": 5, "q_len": 4, "capacity": 11, "wanted": 2},
    "prefill": {"batch": 2, "source_len": 7, "q_len": 6, "capacity": 6, "wanted": 1, "empty": True},
    "decode": {"batch": 4, "source_len": 3, "q_len": 1, "capacity": 9, "wanted": 1},
}
TOLERANCE = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.15}


@pytest.fixture(scope="module")
def sizes(tiny_bundle: Path) -> names.Sizes:
    return read_manifest(tiny_bundle).sizes


@pytest.fixture(scope="module")
def given(sizes: names.Sizes) -> dict[str, Arrays]:
    return {name: step_inputs(sizes, **step) for name, step in STEPS.items()}


@pytest.fixture(scope="module")
def expected(tiny_bundle: Path, given: dict[str, Arrays]) -> dict[str, Arrays]:
    """What the portable graph gives."""
    return {name: run(read(tiny_bundle, "decoder"), arrays) for name, arrays in given.items()}


def close_to(found: Arrays, expected: Arrays, tolerance: float) -> None:
    assert found.keys() == {*expected, names.NEXT_IDS, names.NEXT_LOG_PROBS}
    for name, array in expected.items():
        np.testing.assert_allclose(found[name].astype(np.float32), array, rtol=0, atol=tolerance, err_msg=name)
    logits = found[names.LOGITS].astype(np.float64)
    assert (found[names.NEXT_IDS] == logits.argmax(-1)).all()
    log_probs = logits.max(-1) - np.log(np.exp(logits).sum(-1))
    np.testing.assert_allclose(found[names.NEXT_LOG_PROBS], log_probs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_step_gives_what_the_portable_graph_gives(
    tiny_bundle: Path, given: dict[str, Arrays], expected: dict[str, Arrays], form: str, dtype: str
) -> None:
    model = typed(tiny_bundle, "decoder", dtype=dtype, attention=form)
    check(model)
    for name, arrays in given.items():
        found = evaluate(model, arrays, dtype)
        assert found["present.0.key"].dtype == dtype
        assert found[names.LOGITS].dtype == found[names.NEXT_LOG_PROBS].dtype == np.float32
        assert found[names.NEXT_IDS].dtype == np.int64
        close_to(found, expected[name], TOLERANCE[dtype])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_encoder_gives_what_the_portable_graph_gives(tiny_bundle: Path, form: str, dtype: str) -> None:
    model, arrays = typed(tiny_bundle, "encoder", dtype=dtype, attention=form), encoder_inputs(3, 6)
    check(model)
    lengths = arrays[names.SOURCE_LENGTHS]
    expected = within(run(read(tiny_bundle, "encoder"), arrays), lengths)
    found = within(evaluate(model, arrays, dtype), lengths)
    for name, array in expected.items():
        assert found[name].dtype == dtype
        np.testing.assert_allclose(found[name], array, rtol=0, atol=TOLERANCE[dtype], err_msg=name)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_graph_to_verify_with_computes_the_same(
    tiny_bundle: Path, given: dict[str, Arrays], expected: dict[str, Arrays], form: str, dtype: str
) -> None:
    model = typed(tiny_bundle, "decoder", dtype=dtype, attention=form, capacity=16)
    before = ir.to_proto(model).SerializeToString()
    standard = verification_graph(model)
    assert ir.to_proto(model).SerializeToString() == before
    for name, arrays in given.items():
        close_to(run(standard, arrays), expected[name], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_graph_to_verify_with_rounds_as_the_type_does(
    tiny_bundle: Path, given: dict[str, Arrays], dtype: str
) -> None:
    narrow = ir.DataType[dtype.upper()].numpy()
    standard = verification_graph(typed(tiny_bundle, "decoder", dtype=dtype))
    rounded = {
        name: array.astype(narrow).astype(np.float32) if array.dtype == np.float32 else array
        for name, array in given["ragged"].items()
    }
    for name, array in run(standard, rounded).items():
        if name.startswith(("present.", names.LOGITS)):
            assert array.dtype == np.float32
            assert (array.astype(narrow).astype(np.float32) == array).all(), name


@pytest.mark.parametrize(("form", "opset"), [("native", 24), ("plugin", 20), ("primitive", 20)])
def test_the_opset_is_the_oldest_that_has_the_operators(tiny_bundle: Path, form: str, opset: int) -> None:
    model = typed(tiny_bundle, "decoder", attention=form)
    assert model.opset_imports[""] == opset
    assert ("Attention" in operators(model)) == (form == "native")
    assert typed(tiny_bundle, "decoder", attention=form, weights="int4").opset_imports[""] == max(opset, 21)


@pytest.mark.parametrize("form", FORMS)
def test_capacity_is_a_number_where_one_is_given_and_nothing_else_changes(tiny_bundle: Path, form: str) -> None:
    dynamic = typed(tiny_bundle, "decoder", attention=form)
    model = typed(tiny_bundle, "decoder", attention=form, capacity=48)
    check(model)
    for value, before in zip(
        (*model.graph.inputs, *model.graph.outputs), (*dynamic.graph.inputs, *dynamic.graph.outputs), strict=True
    ):
        assert value.name == before.name
        assert str(value.shape) == str(before.shape).replace("capacity", "48")
    assert "capacity" in str(dynamic.graph.inputs[4].shape)


@pytest.mark.parametrize("form", FORMS)
def test_every_input_of_the_portable_graph_is_still_there_and_read(tiny_bundle: Path, form: str) -> None:
    for role in ("encoder", "decoder"):
        model = typed(tiny_bundle, role, attention=form)
        assert [value.name for value in model.graph.inputs] == [v.name for v in read(tiny_bundle, role).graph.inputs]
        assert all(list(value.uses()) for value in model.graph.inputs)


def test_a_graph_that_is_no_step_graph_is_left_without_next_tokens(tiny_bundle: Path) -> None:
    model = read(tiny_bundle, "encoder")
    outputs = [value.name for value in model.graph.outputs]
    notes = rewrite(model, "encoder", dtype="float16", weights=None, attention="native", capacity=None)
    assert [value.name for value in model.graph.outputs] == outputs
    assert notes == ()
