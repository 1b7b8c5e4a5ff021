"""Whatever the family: graphs for ONNX Runtime's CPU kernels give what the portable graphs give, however rows step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.onnx_graphs import export_step
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.ort_cpu import rewrite, use_own_operators
from edgeformer.exporter.ort_cpu.given_positions import GivenPositions
from edgeformer.exporter.ort_cpu.rotary import take_out_rotations
from edgeformer.exporter.ort_cpu.wanted_early import WantedEarly
from edgeformer.exporter.ort_cpu.wanted_rows import WantedRows
from edgeformer.runtime import GenerationConfig, load, names
from edgeformer.runtime.backends import lacking, onnxruntime_long_steps
from edgeformer.runtime.bundle import read_manifest

from .families import ENCODER_DECODER, MODULES, decoder, encoder_decoder, steps
from .graphs import Arrays, only, operators, read, run, step_inputs

# Attentions that no kernel takes stay as they are.
PORTABLE = {"llama heads of 6"}


@pytest.fixture(scope="module", params=MODULES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bundle(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the artifacts onnx and ort-cpu-fp32, both verified against PyTorch."""
    folder = tmp_path_factory.mktemp("family")
    export_module(MODULES[family](folder / "checkpoint"), folder / "bundle")
    optimize_bundle(folder / "bundle", "ort-cpu", "fp32")
    return folder / "bundle"


def test_every_attention_is_one_kernel(family: str, bundle: Path) -> None:
    counts = operators(read(bundle, "decoder", "ort-cpu-fp32"))
    layers = read_manifest(bundle).sizes.num_layers
    assert (counts["GroupQueryAttention"], counts["Attention"]) == ((0, layers) if family in PORTABLE else (layers, 0))
    assert counts["Cos"] == counts["Sin"] == counts["RMSNormalization"] == counts["Sigmoid"] == 0
    turned = family.startswith(("llama", "mistral", "qwen"))
    beside = read_manifest(bundle).artifacts[1].graphs
    assert ("rotation" in beside) is turned


@pytest.mark.parametrize("few", [64, 1], ids=["together", "row by row"])
@pytest.mark.parametrize("chunk", [512, 4], ids=["at once", "in chunks"])
def test_steps_of_any_kind_give_the_portable_graphs_logits(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, few: int, chunk: int
) -> None:
    portable = read_manifest(bundle).artifacts[0]
    if reason := lacking(portable):
        pytest.skip(reason)
    expected = steps(load(bundle, portable.name, threads=1))
    monkeypatch.setattr(onnxruntime_long_steps, "FEW", few)
    monkeypatch.setattr(onnxruntime_long_steps, "CHUNK", chunk)
    monkeypatch.setattr(onnxruntime_long_steps, "LEAST_CHUNK", 1)
    found = steps(load(bundle, "ort-cpu-fp32", threads=1))
    assert len(found) == len(expected) > 15
    for logits, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


# Passes, on the step graph of one family


@pytest.fixture(scope="module")
def step_graph(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """LLaMA's, with a window in its second layer, and normalized heads."""
    folder = tmp_path_factory.mktemp("step")
    model = decoder("qwen3 window", head_dim=16, max_window_layers=1)(folder)
    return ir.to_proto(export_step(model)).SerializeToString()


@pytest.fixture
def graph(step_graph: bytes) -> ir.Model:
    return ir.from_proto(onnx.ModelProto.FromString(step_graph))


def given(**more: Any) -> Arrays:
    sizes = names.Sizes(vocab_size=37, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=16, max_positions=64)
    return step_inputs(sizes, batch=2, source_len=1, capacity=12, **more)


def close_to(found: Arrays, expected: Arrays) -> None:
    wanted = expected[names.LOGITS]
    np.testing.assert_allclose(found[names.LOGITS], wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_cosines_and_sines_are_a_graph_of_their_own(graph: ir.Model) -> None:
    inputs = given(q_len=1, wanted=1)
    before = run(graph, inputs)
    GivenPositions()(graph)
    tables = take_out_rotations(graph)
    assert tables is not None
    RemoveUnusedNodesPass()(graph)
    assert operators(graph)["Cos"] == operators(graph)["Sin"] == 0
    made = run(tables, {names.POSITIONS: np.arange(12)[None]})
    assert {name: array.shape for name, array in made.items()} == dict.fromkeys(names.rotation_names(0), (12, 8))
    close_to(run(graph, {**inputs, **made}), before)


def test_angles_that_depend_on_the_longest_row_stay_in_the_graph(graph: ir.Model) -> None:
    GivenPositions()(graph)
    (angles,) = {node.inputs[0] for node in only(graph, "Cos")}
    longest = ir.node("ReduceMax", [angles], {"keepdims": 1})
    moved = ir.node("Sub", [angles, longest.outputs[0]])
    for node in (*only(graph, "Cos"), *only(graph, "Sin")):
        node.replace_input_with(0, moved.outputs[0])
    graph.graph.insert_after(angles.producer(), [longest, moved])
    assert take_out_rotations(graph) is None
    assert operators(graph)["Cos"] == 1


def test_windows_and_rotations_are_the_kernels_own(graph: ir.Model) -> None:
    assert set(rewrite(graph, "fp32")) == {names.ROTATION}
    use_own_operators(graph, "fp32")
    kernels = only(graph, "GroupQueryAttention")
    assert [node.attributes["local_window_size"].value for node in kernels] == [-1, 4, 4]
    assert all(node.attributes["do_rotary"].value == 1 for node in kernels)
    assert names.POSITIONS not in {value.name for value in graph.graph.inputs}
    assert graph.opset_imports[""] == 21


def test_one_attention_of_its_own_kind_stays_as_it_is_beside_others(graph: ir.Model) -> None:
    inputs = given(q_len=1, wanted=1)
    odd = only(graph, "Attention")[1]
    odd.attributes["softcap"] = ir.AttrFloat32("softcap", 5.0)
    before = run(graph, inputs)
    beside = rewrite(graph, "fp32")
    assert only(graph, "Attention") == [odd]
    assert operators(graph)["GroupQueryAttention"] == 2
    assert names.CACHE_LENGTHS in {value.name for value in graph.graph.inputs}
    made = run(beside[names.ROTATION], {names.POSITIONS: np.arange(12)[None]})
    close_to(run(graph, {**inputs, **made}), before)


def test_what_follows_the_last_attention_is_computed_for_wanted_positions(graph: ir.Model) -> None:
    inputs = given(q_len=5, wanted=2, empty=True)
    before = run(graph, inputs)
    WantedRows()(graph)
    assert WantedEarly()(graph).modified
    order = [node.op_type for node in graph.graph]
    assert order.count("GatherND") == 2
    last_attention = len(order) - 1 - order[::-1].index("Attention")
    between = order[last_attention : order.index("GatherND")]
    assert set(between) <= {"Attention", "Transpose", "Reshape", "Concat"}
    close_to(run(graph, inputs), before)


def test_sources_are_shared_by_rows_whose_own_attention_no_kernel_takes(tmp_path: Path) -> None:
    """Heads of 6 stay in the portable attention, which asked the sources how many rows there are."""
    sizes = {**ENCODER_DECODER, "d_model": 24, "encoder_attention_heads": 2}
    export_module(encoder_decoder("Bart", sizes)(tmp_path / "checkpoint"), tmp_path / "bundle")
    artifact = optimize_bundle(tmp_path / "bundle", "ort-cpu", "fp32")
    assert artifact.shared_sources
    assert operators(read(tmp_path / "bundle", "decoder", "ort-cpu-fp32"))["Attention"] == 3
    config, sources = GenerationConfig(num_beams=3, num_return_sequences=3, max_new_tokens=6), [[5, 9, 3, 4], [7, 3]]
    found, expected = (
        [
            [text.token_ids for text in each.hypotheses]
            for each in load(tmp_path / "bundle", name).generate(sources, config)
        ]
        for name in ("ort-cpu-fp32", "onnx")
    )
    assert found == expected
