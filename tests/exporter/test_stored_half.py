"""Matrices in 16 bits on a CPU: half the file, float32's results where the weights had no more bits."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx_ir.passes import PreconditionError

from edgeformer.cli.benching.graph_weights import weights_of
from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.ort_cpu import rewrite
from edgeformer.exporter.ort_cpu.stored_half import StoredInHalf, rounded
from edgeformer.models.configs.llama import LlamaConfig
from edgeformer.models.configs.rope import Rope, plain_frequencies
from edgeformer.models.llama import Llama
from edgeformer.runtime import GenerationConfig, load, load_encoder

from .graphs import read

VOCABULARY, WIDTH = 3_000, 64
TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.fixture(scope="module", params=TORCH)
def precision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bundle(precision: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose weights have 16 bits, as checkpoints have them, in float32 and stored as they were."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=32, d_ff=96,
        max_positions=64, rope=Rope(plain_frequencies(32, 1e4)), windows=(None, None), tied=True,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Llama(config)
    module.load_state_dict({name: value.to(TORCH[precision]).float() for name, value in module.state_dict().items()})
    folder = tmp_path_factory.mktemp("half") / "bundle"
    export_module(module, folder)
    for each in ("fp32", precision):
        optimize_bundle(folder, "ort-cpu", each)
    return folder


def test_weights_that_have_16_bits_lose_nothing(bundle: Path, precision: str) -> None:
    exact, half = (load(bundle, f"ort-cpu-{each}", threads=1) for each in ("fp32", precision))
    prompts, config = [[5, 9, 2_000, 7], [1]], GenerationConfig(max_new_tokens=12)
    found = [[result.token_ids for result in model.generate(prompts, config)] for model in (exact, half)]
    assert found[0] == found[1]
    scores = [model.score(prompts, found[0]) for model in (exact, half)]
    assert [score.token_log_probs for score in scores[0]] == [score.token_log_probs for score in scores[1]]


def test_the_file_is_half_as_large_and_a_tied_table_is_there_once(bundle: Path, precision: str) -> None:
    sizes = [(bundle / f"ort-cpu-{each}" / "weights.data").stat().st_size for each in ("fp32", precision)]
    assert sizes[1] == pytest.approx(sizes[0] / 2, rel=0.02)
    graph = ir.load(bundle / f"ort-cpu-{precision}" / "decoder.onnx").graph
    half = [value for value in graph.initializers.values() if value.dtype not in (ir.DataType.FLOAT, ir.DataType.INT64)]
    assert [tuple(value.shape or ()) for value in half].count((VOCABULARY, WIDTH)) == 1
    assert len(half) == 1 + 2 * 4  # projections of queries, keys and values are one, those of the gate as well


def test_nothing_is_cast_while_it_runs_but_rows_that_are_looked_up(
    bundle: Path, precision: str, tmp_path: Path
) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(bundle / f"ort-cpu-{precision}" / "decoder.onnx", options, ["CPUExecutionProvider"])
    graph = ir.load(tmp_path / "optimized.onnx").graph
    cast = [node.inputs[0] for node in graph if node.op_type == "Cast"]
    assert not any(value.is_initializer() for value in cast if value is not None)


def test_a_step_reads_as_much_as_in_float32(bundle: Path, precision: str) -> None:
    found = [weights_of(bundle / f"ort-cpu-{each}" / "decoder.onnx", VOCABULARY) for each in ("fp32", precision)]
    assert found[0] == dataclasses.replace(found[1], bytes=found[0].bytes)
    assert found[0].bytes == pytest.approx(found[1].bytes, rel=0.01)  # products without a bias have zeros in one


@pytest.mark.parametrize("kind", ["sentences", "byte masks"])
def test_encoders_are_stored_so_as_well(encoder_bundle: Callable[[str], Path], tmp_path: Path, kind: str) -> None:
    made = Path(shutil.copytree(encoder_bundle(kind), tmp_path / "bundle"))
    optimize_bundle(made, "ort-cpu", "fp16")
    texts = ["the cat sat on the house", "a man"]
    found, expected = (load_encoder(made, name).hidden_states(texts) for name in ("ort-cpu-fp16", "onnx"))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=0.02 * np.abs(theirs).max())


def test_arithmetic_stays_in_float32(tiny_bundle: Path) -> None:
    for role in ("encoder", "decoder"):
        model = read(tiny_bundle, role)
        rewrite(model, "bf16")
        StoredInHalf("bf16")(model)
        large = [
            v for v in model.graph.initializers.values() if v.const_value is not None and v.const_value.size >= 1024
        ]
        assert {value.dtype for value in large} == {ir.DataType.BFLOAT16}
        for node in model.graph:
            if node.op_type in ("MatMul", "Add", "Mul"):
                assert {value.dtype for value in node.inputs if value is not None} <= {ir.DataType.FLOAT, None}


def test_numbers_beyond_16_bits_are_refused_by_name() -> None:
    with pytest.raises(PreconditionError) as caught:
        rounded(np.array([[1.0, 1e5]], np.float32), ir.DataType.FLOAT16, "layers.0.up")
    assert str(caught.value) == "layers.0.up goes up to 100000, more than float16 can hold (65504)"
    assert rounded(np.array([[1e5]], np.float32), ir.DataType.BFLOAT16, "w").dtype == ml_dtypes.bfloat16
