"""The portable graphs keep the contract of `edgeformer.runtime.names`, at every size, in every engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from edgeformer.exporter import onnx_graphs
from edgeformer.exporter.ort_cpu import rewrite
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.models.transformer import Transformer
from edgeformer.runtime import names
from edgeformer.runtime.bundle import read_manifest

from .graphs import (
    Arrays,
    close,
    encode_in_pytorch,
    encoder_inputs,
    only,
    operators,
    read,
    run,
    step_in_pytorch,
    step_inputs,
    within,
)

# (batch, source_len), with the step's q_len, capacity and number of wanted positions
SIZES = [(1, 1, 1, 1, 1), (3, 7, 5, 12, 2), (1, 32, 32, 32, 3), (2, 3, 1, 40, 1)]
every_size = pytest.mark.parametrize("sizes", SIZES, ids=str)


@pytest.fixture(scope="module")
def pytorch(tiny_checkpoint: Path) -> Transformer:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def widths(tiny_bundle: Path) -> names.Sizes:
    return read_manifest(tiny_bundle).sizes


@pytest.fixture(scope="module")
def graphs(tiny_bundle: Path) -> dict[str, ir.Model]:
    """Not to be changed."""
    return {role: read(tiny_bundle, role) for role in ("encoder", "decoder")}


def signature(values: Any) -> dict[str, tuple[str, tuple[str | int, ...]]]:
    return {
        value.name: (value.dtype.name, tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape))
        for value in values
    }


# What they are


def test_the_encoder_has_the_contracts_inputs_and_outputs(graphs: dict[str, ir.Model], widths: names.Sizes) -> None:
    graph = graphs["encoder"].graph
    assert signature(graph.inputs) == {name: ("INT64", shape) for name, shape in names.encoder_inputs().items()}
    shape = names.encoded_shape(widths)
    assert signature(graph.outputs) == dict.fromkeys(names.encoded_names(widths), ("FLOAT", shape))
    assert [value.name for value in graph.outputs] == names.encoded_names(widths)


def test_the_step_has_the_contracts_inputs_and_outputs(graphs: dict[str, ir.Model], widths: names.Sizes) -> None:
    graph = graphs["decoder"].graph
    cache, encoded = ("FLOAT", names.cache_shape(widths)), ("FLOAT", names.encoded_shape(widths))
    expected_inputs = {
        **{name: ("INT64", shape) for name, shape in names.step_inputs(widths).items()},
        **dict.fromkeys(names.past_names(widths), cache),
        **dict.fromkeys(names.encoded_names(widths), encoded),
    }
    expected_outputs = {
        names.LOGITS: ("FLOAT", ("batch", "n", widths.vocab_size)),
        **dict.fromkeys(names.present_names(widths), cache),
    }
    for values, expected in ((graph.inputs, expected_inputs), (graph.outputs, expected_outputs)):
        assert signature(values) == expected
        assert [value.name for value in values] == list(expected)


def test_the_names_are_those_that_the_documentation_spells_out(widths: names.Sizes) -> None:
    assert list(names.step_inputs(widths)) == ["input_ids", "cache_lengths", "logits_at", "source_lengths"]
    assert names.past_names(widths)[:3] == [
        "past_key_values.0.key", "past_key_values.0.value", "past_key_values.1.key",
    ]  # fmt: skip
    assert names.present_names(widths)[-1] == "present.1.value"
    assert names.encoded_names(widths)[0] == "encoder_key_values.0.key"
    assert names.cache_shape(widths) == ("batch", 2, "capacity", 16)


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_they_are_opset_24_and_standard_operators_alone(
    tiny_bundle: Path, graphs: dict[str, ir.Model], role: str
) -> None:
    model = graphs[role]
    assert dict(model.opset_imports) == {"": 24}
    assert {node.domain for node in model.graph} == {""}
    assert len(model.functions) == 0
    onnx.checker.check_model(tiny_bundle / "onnx" / f"{role}.onnx", full_check=True)


def test_attention_is_one_operator_and_so_is_a_write_to_a_cache(
    graphs: dict[str, ir.Model], widths: names.Sizes
) -> None:
    encoder, decoder = operators(graphs["encoder"]), operators(graphs["decoder"])
    assert encoder["Attention"] == 2  # one for each layer
    assert decoder["Attention"] == 2 * widths.num_layers  # over the cache, and over the source
    assert decoder["TensorScatter"] == 2 * widths.num_layers  # keys, and values
    for counts in (encoder, decoder):
        assert counts["LayerNormalization"] == {id(encoder): 4, id(decoder): 6}[id(counts)]
        assert counts["Softmax"] == counts["Sqrt"] == counts["Erf"] == 0
    for node in only(graphs["decoder"], "TensorScatter"):
        assert node.inputs[2] is not None
        assert node.inputs[2].name == names.CACHE_LENGTHS
        assert (node.attributes["mode"].value, node.attributes["axis"].value) == ("linear", -2)


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_they_say_nothing_about_the_machine_that_made_them(tiny_bundle: Path, role: str) -> None:
    content = (tiny_bundle / "onnx" / f"{role}.onnx").read_bytes()
    for told in (b"onnx_graphs.py", b"site-packages", str(Path.home()).encode()):
        assert told not in content


# What they compute


@every_size
def test_the_encoder_runs_at_other_sizes(
    graphs: dict[str, ir.Model], pytorch: Transformer, widths: names.Sizes, sizes: tuple[int, ...]
) -> None:
    given = encoder_inputs(*sizes[:2])
    expected = dict(zip(names.encoded_names(widths), encode_in_pytorch(pytorch, given), strict=True))
    lengths = given[names.SOURCE_LENGTHS]
    close(within(run(graphs["encoder"], given), lengths), within(expected, lengths))


@every_size
def test_the_step_runs_at_other_sizes(
    graphs: dict[str, ir.Model], pytorch: Transformer, widths: names.Sizes, sizes: tuple[int, ...]
) -> None:
    batch, source_len, q_len, capacity, wanted = sizes
    given = step_inputs(widths, batch=batch, source_len=source_len, q_len=q_len, capacity=capacity, wanted=wanted)
    close(run(graphs["decoder"], given), step_in_pytorch(pytorch, widths, given))


def evaluate(path: Path, given: Arrays) -> Arrays:
    """Outputs by ONNX's own reference implementation, in plain NumPy."""
    evaluator = ReferenceEvaluator(str(path))
    taken = {name: given[name] for name in evaluator.input_names}
    return dict(zip(evaluator.output_names, evaluator.run(None, taken), strict=True))  # type: ignore[arg-type]


def test_the_onnx_reference_gives_what_pytorch_gives(
    tiny_bundle: Path, pytorch: Transformer, widths: names.Sizes
) -> None:
    """The graphs mean by the specification what they mean here, whatever engine reads them."""
    given = encoder_inputs(3, 7)
    expected = dict(zip(names.encoded_names(widths), encode_in_pytorch(pytorch, given), strict=True))
    lengths = given[names.SOURCE_LENGTHS]
    close(within(evaluate(tiny_bundle / "onnx" / "encoder.onnx", given), lengths), within(expected, lengths), 1e-5)
    given = step_inputs(widths, batch=3, source_len=7, q_len=5, capacity=12, wanted=2)
    close(
        evaluate(tiny_bundle / "onnx" / "decoder.onnx", given), step_in_pytorch(pytorch, widths, given), tolerance=1e-5
    )


# Other models


@pytest.fixture(scope="module")
def other(make_model: Callable[..., Transformer]) -> Transformer:
    """Every choice of the configuration is another one, and only d_ff is a multiple of 32."""
    choices = {"norm_placement": "pre", "positions": "learned", "activation": "gelu", "scale_embeddings": False}
    sizes = {"d_model": 24, "num_heads": 3, "d_ff": 64, "num_encoder_layers": 1, "num_decoder_layers": 2}
    return make_model(**choices, **sizes).float()


@pytest.fixture(scope="module")
def other_graphs(other: Transformer) -> dict[str, ir.Model]:
    return {"encoder": onnx_graphs.export_encoder(other), "decoder": onnx_graphs.export_step(other)}


@pytest.mark.parametrize("precision", [None, "fp32", "int8", "int8-rows"])
def test_another_kind_of_model_exports_and_is_rewritten_as_well(
    other: Transformer, other_graphs: dict[str, ir.Model], precision: str | None
) -> None:
    graphs = {role: graph.clone() for role, graph in other_graphs.items()}
    if precision:
        for graph in graphs.values():
            rewrite(graph, precision)
    tolerance = {None: 1e-4, "fp32": 1e-4}.get(precision, 0.5)
    sizes = onnx_graphs.sizes_of(other)
    given = encoder_inputs(3, 7, sizes.vocab_size)
    expected = dict(zip(names.encoded_names(sizes), encode_in_pytorch(other, given), strict=True))
    lengths = given[names.SOURCE_LENGTHS]
    close(within(run(graphs["encoder"], given), lengths), within(expected, lengths), tolerance)
    for q_len, empty in ((4, True), (1, False)):
        given = step_inputs(sizes, batch=3, source_len=7, q_len=q_len, capacity=12, wanted=1, empty=empty)
        expected, found = step_in_pytorch(other, sizes, given), run(graphs["decoder"], given)
        np.testing.assert_allclose(found[names.LOGITS], expected[names.LOGITS], rtol=0, atol=tolerance)


def test_exporting_is_quiet(make_model: Callable[..., Transformer], capfd: pytest.CaptureFixture[str]) -> None:
    model = make_model(num_encoder_layers=1, num_decoder_layers=1).float().train()
    onnx_graphs.export_encoder(model)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
