"""Bytes of weights: the estimate against what was stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from edgeformer.cli.sizing import activations, stored
from edgeformer.cli.sizing.graphs import shape_of_bundle
from edgeformer.cli.sizing.shapes import Role, Shape, Weight
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.ort_cpu import block_codes, tables, weight_only
from edgeformer.exporter.tensorrt import profiles
from edgeformer.exporter.tensorrt import weight_only as engine_weights
from edgeformer.runtime.bundle import open_bundle
from edgeformer.runtime.memory_needs import Load, weight_bytes
from edgeformer.runtime.names import Sizes

SIZES = Sizes(vocab_size=4096, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=32, max_positions=64)


def shape(*weights: Weight, others: int = 0) -> Shape:
    return Shape("llama", "decoder", SIZES, None, {"decoder": Role(weights, others, 1)}, (None,), 0)


@pytest.mark.parametrize("tied", [True, False])
def test_an_artifact_is_as_large_as_was_estimated(
    tied: bool, tmp_path: Path, exported: Callable[[Path, int], Path]
) -> None:
    """Blocks of 4 and 8 bits with their scales, tables in 8 bits; what is left is the graphs' own text."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=4096, hidden_size=192, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        intermediate_size=416, max_position_embeddings=64, tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "checkpoint")
    folder = exported(tmp_path / "checkpoint", config.vocab_size)
    for precision in ("fp32", "int8", "int8-rows", "int4"):
        optimize_bundle(folder, "ort-cpu", precision)
    bundle = open_bundle(folder)
    estimated = shape_of_bundle(bundle)
    for artifact in bundle.manifest.artifacts[1:]:
        bytes_ = stored.weight_bytes(estimated, "ort-cpu", artifact.precision)
        assert bytes_ == pytest.approx(weight_bytes(artifact), rel=0.03), artifact.name


def test_rules_are_the_exporters() -> None:
    assert stored.BLOCKS == weight_only.USUAL_BLOCKS == engine_weights.BLOCKS
    assert stored.LEAST_ROWS == tables.TABLE_ROWS
    for bits in (4, 8):
        scheme = block_codes.Scheme(bits, 64)
        assert stored.on_cpu("product", Weight(0, 192, 10, True, False), f"int{bits}") == scheme.bytes(192, 10)
    assert activations.WANTED == profiles.WANTED
    assert {kind: profiles.Q_LEN[kind] for kind in activations.LONGEST_STEP} == activations.LONGEST_STEP  # type: ignore[index]


def test_an_engine_keeps_the_vocabulary_in_16_bits() -> None:
    body, head = Weight(0, 256, 512, True, False), Weight(1, 256, 4096, True, True)
    plan = stored.PLAN["decoder"] + 4 * 10
    one = shape(body, head, others=10)
    assert stored.weight_bytes(one, "tensorrt", "fp16") == plan + 2 * (256 * 512 + 256 * 4096)
    assert stored.weight_bytes(one, "tensorrt", "int8") == plan + 256 * 512 + 2 * 512 + 2 * 256 * 4096
    blocks = 256 * 512 // 128
    assert stored.weight_bytes(one, "tensorrt", "int4") == plan + 256 * 512 // 2 + 2 * blocks + 2 * 256 * 4096
    odd = shape(Weight(0, 256, 511, True, False))
    assert stored.weight_bytes(odd, "tensorrt", "int4") == stored.weight_bytes(odd, "tensorrt", "fp16")


def test_what_no_block_divides_stays_wide_and_small_tables_do_as_well() -> None:
    misfit, small = Weight(0, 100, 8, True, False), Weight(1, 64, 100, False, True)
    assert stored.weight_bytes(shape(misfit, small), "ort-cpu", "int4") == 4 * (800 + 6400)
    assert stored.weight_bytes(shape(misfit, small), "ort-cuda", "fp16") == 2 * (800 + 6400)


def test_a_step_reads_no_tables() -> None:
    table, product = Weight(0, 64, 4096, False, True), Weight(1, 64, 64, True, False)
    one = shape(table, product, others=3)
    assert stored.read_bytes(one, one.roles["decoder"], "ort-cpu", "fp32") == 4 * (64 * 64 + 3)


def test_activations_are_about_those_of_builds() -> None:
    """A LLaMA of 256 with 8,192 tokens: TensorRT for RTX 1.7 took 10,263,040 bytes for a row, in each precision."""
    weights = (
        Weight(0, 256, 8192, True, True), Weight(1, 256, 256, True, False), Weight(2, 256, 704, True, False),
        Weight(3, 704, 256, True, False),
    )  # fmt: skip
    sizes = Sizes(vocab_size=8192, num_layers=4, num_heads=4, num_kv_heads=2, head_dim=64, max_positions=2048)
    one = Shape("llama", "decoder", sizes, None, {"decoder": Role(weights, 0, 4)}, (None,) * 4, 0)
    assert activations.activation_bytes(one, "decoder", Load(1, 512, 0)) == pytest.approx(10_263_040, rel=0.15)
