"""Tokens with a meaning are those that transformers generates with: generation_config.json's, then config.json's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgeformer.models.checkpoint import read_config
from edgeformer.runtime.errors import ConfigError

LLAMA = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 8, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": None,
}  # fmt: skip
MBART = {
    "model_type": "mbart", "vocab_size": 40, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8,
    "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1,
}  # fmt: skip
T5 = {
    "model_type": "t5", "vocab_size": 40, "d_model": 8, "num_layers": 1, "num_heads": 2, "d_kv": 4, "d_ff": 8,
    "eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0,
}  # fmt: skip
BERT = {
    "model_type": "roberta", "vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 8, "max_position_embeddings": 16, "pad_token_id": 1,
}  # fmt: skip


def tokens(folder: Path, values: dict[str, Any], generation: object = None) -> tuple[int, int, tuple[int, ...]]:
    (folder / "config.json").write_text(json.dumps(values))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    config = read_config(folder)
    return config.pad_token_id, config.start_token_id, config.eos_token_ids


@pytest.mark.parametrize(
    ("values", "generation", "expected"),
    [
        (LLAMA, None, (2, 1, (2,))),
        (LLAMA, {}, (2, 1, (2,))),
        (LLAMA, {"eos_token_id": [7, 9], "pad_token_id": 3, "bos_token_id": 5}, (3, 5, (7, 9))),
        (LLAMA, {"eos_token_id": None, "pad_token_id": 3, "decoder_start_token_id": 6}, (3, 1, (2,))),
        (MBART, None, (1, 0, (2,))),
        (MBART, {"decoder_start_token_id": 11, "forced_bos_token_id": 12}, (1, 11, (2,))),
        (MBART, {"bos_token_id": 4}, (1, 4, (2,))),
        (T5, {"decoder_start_token_id": 8, "eos_token_id": [1, 5]}, (0, 8, (1, 5))),
    ],
    ids=str,
)
def test_generation_config_comes_first(
    tmp_path: Path, values: dict[str, Any], generation: object, expected: tuple[int, int, tuple[int, ...]]
) -> None:
    assert tokens(tmp_path, values, generation) == expected


def test_what_only_reads_keeps_its_padding(tmp_path: Path) -> None:
    """RoBERTa's positions begin behind it."""
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    (tmp_path / "generation_config.json").write_text('{"pad_token_id": 7}')
    config = read_config(tmp_path)
    assert (config.pad_token_id, config.first_position) == (1, 2)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"eos_token_id": [2, 40]}', "eos_token_id is [40], outside the vocabulary of 40"),
        ("{", "generation_config.json is not JSON"),
        ("[]", "generation_config.json holds no object"),
    ],
)
def test_what_is_wrong_with_it_is_named(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path)
    assert [one.startswith(problem) for one in caught.value.problems] == [True]
