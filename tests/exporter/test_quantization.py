"""Weights in few bits, by samples of text: what is asked, what is measured, what is refused."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.ort_cpu import recipes
from edgeformer.exporter.ort_cpu.recipes import Measured, kept_at_8_bits
from edgeformer.exporter.quantization_options import QuantizationOptions, check_quantization
from edgeformer.models.configs.llama import LlamaConfig
from edgeformer.models.configs.rope import Rope, plain_frequencies
from edgeformer.models.llama import Llama
from edgeformer.runtime import load_encoder
from edgeformer.runtime.errors import InputError, OptionError, ParityError

from ..encoder_checkpoints import WORDS
from .own_decoder import Config, OwnDecoder


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("abba\ncabbage\n\nzoo\nqueue\n")
    return path


def in_blocks(graph: ir.Graph) -> list[ir.Node]:
    """Products with weights in blocks."""
    return [node for node in graph if node.op_type in ("MatMulNBits", "BlockQuantizedMatMul")]


def bits(node: ir.Node) -> int:
    return node.attributes["bits"].as_int()


def bits_of(folder: Path, artifact: str) -> dict[str, int]:
    found = {}
    for role in ("encoder", "decoder"):
        for node in in_blocks(ir.load(folder / artifact / f"{role}.onnx").graph):
            found[f"{role}.{node.inputs[1].name}"] = bits(node)
    return found


def test_a_calibrated_artifact_is_another_one_and_stays_within_the_tolerance(bundle: Path, texts: Path) -> None:
    """That it verifies is the optimization's own promise; that the texts changed something shows in its weights."""
    optimize_bundle(bundle, "ort-cpu", "int4")
    plain = (bundle / "ort-cpu-int4" / "weights.data").read_bytes()
    optimize_bundle(bundle, "ort-cpu", "int4", quantization=QuantizationOptions(calibration=texts))
    assert (bundle / "ort-cpu-int4" / "weights.data").read_bytes() != plain
    assert not (bundle / "ort-cpu-int4" / recipes.TRIAL).exists()


@pytest.mark.parametrize("asymmetric", [False, True])
def test_a_block_size_is_what_the_products_get(bundle: Path, asymmetric: bool) -> None:
    options = QuantizationOptions(block_size=32, asymmetric=asymmetric)
    optimize_bundle(bundle, "ort-cpu", "int4", quantization=options)
    nodes = in_blocks(ir.load(bundle / "ort-cpu-int4" / "decoder.onnx").graph)
    assert {node.attributes["block_size"].as_int() for node in nodes} == {32}
    with_points = [n for n in nodes if n.op_type == "MatMulNBits" and len(n.inputs) > 3 and n.inputs[3] is not None]
    assert with_points == (nodes if asymmetric else [])


@pytest.mark.parametrize(("average", "expected"), [(4.0, {4}), (8.0, {8}), (6.0, {4, 8})])
def test_average_bits_are_kept(bundle: Path, average: float, expected: set[int]) -> None:
    optimize_bundle(bundle, "ort-cpu", "auto", quantization=QuantizationOptions(average_bits=average))
    assert set(bits_of(bundle, "ort-cpu-auto").values()) == expected


def test_a_budget_of_nothing_keeps_8_bits(bundle: Path) -> None:
    optimize_bundle(bundle, "ort-cpu", "auto", quantization=QuantizationOptions(most_divergence=1e-9))
    found = list(bits_of(bundle, "ort-cpu-auto").values())
    assert found.count(8) >= len(found) - 2, "all that changes anything at all"


def test_the_damage_of_each_product_is_measured(bundle: Path, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product whose codes say nothing costs more than all the others."""
    seen = list[Measured]()
    original = recipes.coded_with

    def spoiled(moments: object, inputs: object, name: str, weight: np.ndarray, scheme: object) -> object:
        made = original(moments, inputs, name, weight * 0 if weight.shape[1] == 69 else weight, scheme)
        return made

    def spy(measured: list[Measured], budget: float, average_bits: float | None) -> list[Measured]:
        seen.extend(measured)
        return kept_at_8_bits(measured, budget, average_bits)

    monkeypatch.setattr(recipes, "coded_with", spoiled)
    monkeypatch.setattr(recipes, "kept_at_8_bits", spy)
    with contextlib.suppress(ParityError):  # which a spoiled projection may well cause
        optimize_bundle(bundle, "ort-cpu", "auto", quantization=QuantizationOptions(calibration=texts))
    worst = max(seen, key=lambda m: m.divergence)
    assert (worst.role, worst.numbers) == ("decoder", 32 * 69)
    assert worst.divergence > 10 * sorted(m.divergence for m in seen)[-2]


def test_a_language_model_is_measured_on_its_golden_samples(tmp_path: Path) -> None:
    """Half of its weights may have 8 bits; which ones, its golden samples say."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = OwnDecoder(Config(d_model=64, head_dim=16))
    export_module(module, tmp_path / "bundle")
    optimize_bundle(tmp_path / "bundle", "ort-cpu", "auto", quantization=QuantizationOptions(average_bits=6.0))
    graph = ir.load(tmp_path / "bundle" / "ort-cpu-auto" / "decoder.onnx").graph
    stored = in_blocks(graph)
    assert {bits(node) for node in stored} == {4, 8}
    numbers = [(n.attributes["K"].as_int() * n.attributes["N"].as_int(), bits(n)) for n in stored]
    assert 4 < sum(count * bits for count, bits in numbers) / sum(count for count, _ in numbers) <= 6


@pytest.mark.parametrize("kind", ["sentences", "entities", "masks"])
def test_texts_help_an_encoder(encoder_bundle: Callable[[str], Path], tmp_path: Path, kind: str) -> None:
    """Rounded by the inputs that its products have, an encoder's outputs are nearer to those of fp32."""
    bundle, texts = Path(shutil.copytree(encoder_bundle(kind), tmp_path / "bundle")), tmp_path / "texts.txt"
    texts.write_text("".join(f"the {a} sat on the {b} {c} .\n" for a in WORDS for b in WORDS for c in ("house", "man")))
    told, reference = ["a small dog ran in paris", "big red food , and it was the cat"], load_encoder(bundle, "onnx")

    def distance(calibration: Path | None) -> float:
        optimize_bundle(bundle, "ort-cpu", "int4", quantization=QuantizationOptions(calibration=calibration))
        states = zip(load_encoder(bundle, "ort-cpu-int4").hidden_states(told), expected, strict=True)
        return sum(float(np.square(found - wanted).sum()) for found, wanted in states)

    expected = reference.hidden_states(told)
    assert distance(texts) < distance(None)


def test_the_damage_to_an_encoder_is_a_share_of_its_output(
    encoder_bundle: Callable[[str], Path], tmp_path: Path
) -> None:
    bundle, texts = Path(shutil.copytree(encoder_bundle("sentences"), tmp_path / "bundle")), tmp_path / "texts.txt"
    texts.write_text("the cat sat on the house\na man ate food\n")
    stored = {}
    for budget in (1e-9, 10.0):
        options = QuantizationOptions(calibration=texts, most_divergence=budget)
        optimize_bundle(bundle, "ort-cpu", "auto", quantization=options)
        graph = ir.load(bundle / "ort-cpu-auto" / "encoder.onnx").graph
        stored[budget] = {bits(node) for node in in_blocks(graph)}
    assert stored == {1e-9: {8}, 10.0: {4}}


@pytest.mark.parametrize("precision", ["int8", "int8-rows", "int4", "auto"])
def test_a_tied_vocabulary_is_stored_in_codes(tmp_path: Path, precision: str) -> None:
    """So large that torch leaves its transposition to the graph; in 8 bits the table and the product share codes."""
    rope = Rope(plain_frequencies(32, 1e4))
    config = LlamaConfig(
        vocab_size=20_000, d_model=64, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=32, d_ff=64,
        max_positions=64, rope=rope, windows=(None,), tied=True,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = Llama(config)
    export_module(module, tmp_path / "bundle")
    optimize_bundle(tmp_path / "bundle", "ort-cpu", precision, quantization=QuantizationOptions())
    made = tmp_path / "bundle" / f"ort-cpu-{precision}"
    operators = {node.op_type for node in ir.load(made / "decoder.onnx").graph}
    assert not operators & {"MatMul", "Transpose"}
    table = 20_000 * 64
    sizes = {"int8": table, "int8-rows": 2 * table, "int4": 1.5 * table, "auto": 1.5 * table}
    assert (made / "weights.data").stat().st_size == pytest.approx(sizes[precision], rel=0.15)


def empty(path: Path) -> None:
    path.write_text(" \n\n")


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\x01" * 9)


def missing(path: Path) -> None:
    path.unlink()


def unknown(path: Path) -> None:
    path.write_text("abc\nÄÖÜ\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [(empty, "is empty"), (binary, "is not UTF-8"), (missing, "cannot be read"), (unknown, "line 2: ")],
)
def test_a_calibration_file_that_cannot_be_used_is_named(
    bundle: Path, texts: Path, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(texts)
    before = sorted(path.name for path in bundle.iterdir())
    with pytest.raises(InputError) as caught:
        optimize_bundle(bundle, "ort-cpu", "int4", quantization=QuantizationOptions(calibration=texts))
    assert said in str(caught.value)
    assert str(texts) in str(caught.value)
    assert sorted(path.name for path in bundle.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "precision", "said"),
    [
        ({"block_size": 48}, "int4", "--block-size is 48, expected one of 32, 64, 128"),
        ({"average_bits": 5.0}, "int4", "budgets of precision auto"),
        ({"average_bits": 3.0}, "auto", "--average-bits is 3.0, expected 4 to 8"),
        ({"most_divergence": 0.0}, "auto", "--most-divergence is 0.0, expected a number above 0"),
        ({"average_bits": 5.0, "most_divergence": 0.1}, "auto", "give one"),
        ({"asymmetric": True}, "fp32", "--asymmetric is for target ort-cpu"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, float], precision: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_quantization(QuantizationOptions(**options), "ort-cpu", precision)
