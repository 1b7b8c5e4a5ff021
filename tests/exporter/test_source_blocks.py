"""Encoders for long sources: attention in blocks gives what all at once gives, and keeps no scores of all with all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
import transformers

from edgeformer.exporter.encoder_graphs import describe_encoder, export_encoder_only
from edgeformer.exporter.exporting import export_checkpoint, export_module
from edgeformer.exporter.onnx_graphs import export_encoder
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.ort_cpu import rewrite
from edgeformer.exporter.ort_cpu.distance_bias import bias_by_distance
from edgeformer.exporter.ort_cpu.source_blocks import in_blocks, require_same
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.runtime import GenerationConfig, load, load_encoder, names
from edgeformer.runtime.backends import onnxruntime_long_sources
from edgeformer.runtime.encoder_records import TOKEN_TYPE_IDS
from edgeformer.runtime.errors import ParityError

from .families import MODULES, T5
from .graphs import Arrays, encoder_inputs, only, operators, run

BERT: dict[str, Any] = {
    "vocab_size": 37, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 600,
}  # fmt: skip


def bert(folder: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(**BERT)).save_pretrained(folder)
    return load_checkpoint(folder)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def graph_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ir.Model]:
    """The encoder of a family as ONNX Runtime's kernels take it: a copy to change."""
    made: dict[str, ir.Model] = {}

    def graph(family: str) -> ir.Model:
        if family not in made:
            folder = tmp_path_factory.mktemp(family) / "checkpoint"
            if family == "bert":
                model: Any = bert(folder)
                made[family] = export_encoder_only(model, describe_encoder(model))
            else:
                made[family] = export_encoder(MODULES[family](folder))
        return made[family].clone()

    return graph


@pytest.mark.parametrize("precision", ["fp32", "int8-rows"])
@pytest.mark.parametrize("family", ["bert", "bart", "t5"])
def test_any_block_gives_what_all_at_once_gives(
    graph_of: Callable[[str], ir.Model], family: str, precision: str
) -> None:
    plain = graph_of(family)
    rewrite(plain, precision)
    blocks = in_blocks(plain)
    assert blocks is not None
    counts = operators(blocks)
    assert (counts["Loop"], counts["MultiHeadAttention"]) == (operators(plain)["MultiHeadAttention"], 0)
    given = encoder_inputs(3, 23, 37) | {TOKEN_TYPE_IDS: np.zeros((3, 23), np.int64)}
    lengths = given[names.SOURCE_LENGTHS] = np.array([23, 9, 16])
    expected = real(run(plain, given), lengths)
    for block in (1, 5, 23, 40):
        found = real(run(blocks, given | {names.QUERY_BLOCK: np.array([block])}), lengths)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


def real(found: Arrays, lengths: Any) -> list[Any]:
    """What an encoder gives for tokens that are no padding."""
    return [row[..., :length, :] for array in found.values() for row, length in zip(array, lengths, strict=True)]


def test_the_bias_of_far_distances_is_one_number(graph_of: Callable[[str], ir.Model]) -> None:
    graph = graph_of("t5")
    rewrite(graph, "fp32")
    mask = only(graph, "MultiHeadAttention")[0].inputs[5]
    assert mask is not None
    table = bias_by_distance(graph.graph, mask)
    assert table is not None
    (heads, width), most = table.shape, T5["relative_attention_max_distance"]
    assert heads == T5["num_heads"]
    assert width <= 2 * most + 1
    # No distance is both 0 and behind the query.
    assert len(np.unique(table[0])) == T5["relative_attention_num_buckets"] - 1


def test_a_mask_that_is_no_bias_by_distance_is_left_alone(graph_of: Callable[[str], ir.Model]) -> None:
    graph = graph_of("t5")
    rewrite(graph, "fp32")
    mask = only(graph, "MultiHeadAttention")[0].inputs[5]
    assert mask is not None
    tape = ir.tape.Tape()
    slope = tape.op("CumSum", [mask, tape.op("Constant", [], {"value": ir.tensor(np.array(3))})])
    slope.type, slope.shape = mask.type, mask.shape
    users = only(graph, "MultiHeadAttention")
    graph.graph.insert_before(users[0], tape.nodes)
    for user in users:
        user.replace_input_with(5, slope)
    assert bias_by_distance(graph.graph, slope) is None
    assert in_blocks(graph) is None


def test_an_encoder_in_blocks_that_differs_is_not_written(graph_of: Callable[[str], ir.Model], tmp_path: Path) -> None:
    plain = graph_of("bart")
    rewrite(plain, "fp32")
    blocks = in_blocks(plain)
    assert blocks is not None
    ir.save(plain, tmp_path / "encoder.onnx")
    ir.save(blocks, tmp_path / f"{names.LONG_ENCODER}.onnx")
    require_same(tmp_path, 37, "fp32")
    name = next(name for name in blocks.graph.initializers if "embedding" in name)
    value = blocks.graph.initializers[name]
    assert value.const_value is not None
    value.const_value = ir.tensor(value.const_value.numpy() * 1.1, name=name)
    ir.save(blocks, tmp_path / f"{names.LONG_ENCODER}.onnx")
    with pytest.raises(ParityError, match="differs from the encoder by"):
        require_same(tmp_path, 37, "fp32")


# Through the runtime


def test_long_sources_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bert(tmp_path / "checkpoint")
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
    }
    (tmp_path / "checkpoint" / "tokenizer.json").write_text(json.dumps(tokenizer))
    export_checkpoint(tmp_path / "checkpoint", tmp_path / "bundle")
    optimize_bundle(tmp_path / "bundle", "ort-cpu", "fp32")
    rows = [[5, 9, 3] * 15, [7] * 40, [4] * 3]
    expected = load_encoder(tmp_path / "bundle", "ort-cpu-fp32", threads=1).hidden_states(rows)
    monkeypatch.setattr(onnxruntime_long_sources, "MOST_SCORES", 4 * 20 * 20)
    monkeypatch.setattr(onnxruntime_long_sources, "BLOCK_SCORES", 1)
    model = load_encoder(tmp_path / "bundle", "ort-cpu-fp32", threads=1)
    sessions = model.executor.sessions  # type: ignore[attr-defined]
    found = model.hidden_states(rows[2:])
    assert sessions.long is None
    found = [*model.hidden_states(rows[:2]), *found]
    assert sessions.long is not None
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_a_long_source_that_is_read_in_blocks_gives_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_module(MODULES["t5"](tmp_path / "checkpoint"), tmp_path / "bundle")
    optimize_bundle(tmp_path / "bundle", "ort-cpu", "int8-rows")
    sources, config = [[5, 9, 3] * 20, [7, 30] * 27, [4] * 3], GenerationConfig(max_new_tokens=8, num_beams=2)
    expected = load(tmp_path / "bundle", "ort-cpu-int8-rows", threads=1).generate(sources, config)
    monkeypatch.setattr(onnxruntime_long_sources, "MOST_SCORES", 3 * 20 * 20)
    monkeypatch.setattr(onnxruntime_long_sources, "BLOCK_SCORES", 1)
    model = load(tmp_path / "bundle", "ort-cpu-int8-rows", threads=1)
    found = model.generate(sources, config)
    assert model.executor.encoders.long is not None  # type: ignore[attr-defined]
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
