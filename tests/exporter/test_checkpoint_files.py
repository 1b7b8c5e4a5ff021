"""What a bundle keeps of its checkpoint, and how to generate among it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from edgeformer.exporter.checkpoint_files import prepare_checkpoint_files
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.errors import CheckpointError


@dataclasses.dataclass(frozen=True)
class Config:
    vocab_size: int = 4


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    Tokenizer(models.WordLevel({word: i for i, word in enumerate("abcd")}, "a")).save(str(folder / "tokenizer.json"))
    return folder


def kept(checkpoint: Path, values: dict[str, Any]) -> Path:
    (checkpoint / "config.json").write_text(json.dumps(values))
    folder = checkpoint.parent / "kept"
    folder.mkdir()
    prepare_checkpoint_files(checkpoint, folder, Config())
    return folder


# As a summarizer's of 2020, before generation had a file of its own.
OLDER = {
    "model_type": "bart", "num_beams": 4, "max_length": 142, "min_length": 56, "length_penalty": 2.0,
    "early_stopping": True, "no_repeat_ngram_size": 3, "forced_eos_token_id": 2, "forced_bos_token_id": 0,
    "eos_token_id": 2, "num_beam_groups": 1, "temperature": 1.0, "d_model": 8, "bad_words_ids": None,
}  # fmt: skip


def test_options_in_an_older_config_are_the_bundles(checkpoint: Path) -> None:
    values = json.loads((kept(checkpoint, OLDER) / "generation_config.json").read_text())
    assert GenerationConfig.from_dict(values) == GenerationConfig(
        num_beams=4, max_length=142, min_length=56, length_penalty=2.0, early_stopping=True, no_repeat_ngram_size=3,
        forced_eos_token_id=2, forced_bos_token_id=0,
    )  # fmt: skip


def test_a_generation_config_is_kept_as_it_is_and_counts_alone(checkpoint: Path) -> None:
    (checkpoint / "generation_config.json").write_text('{ "num_beams": 2}')
    assert (kept(checkpoint, OLDER) / "generation_config.json").read_text() == '{ "num_beams": 2}'


def test_a_config_without_options_makes_none(checkpoint: Path) -> None:
    assert not (kept(checkpoint, {"model_type": "bart", "eos_token_id": 2}) / "generation_config.json").exists()


def test_options_that_are_not_supported_are_refused_wherever_they_stand(checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: not supported: diversity_penalty=0\.5"):
        kept(checkpoint, OLDER | {"diversity_penalty": 0.5})


def test_a_tokenizer_that_knows_more_than_the_model_is_refused_with_both_numbers(checkpoint: Path) -> None:
    words = {word: i for i, word in enumerate("abcdef")}
    Tokenizer(models.WordLevel(words, "a")).save(str(checkpoint / "tokenizer.json"))
    with pytest.raises(CheckpointError) as caught:
        kept(checkpoint, OLDER)
    assert caught.value.problems == (
        "tokenizer.json has ids up to 5, the model's vocab_size is 4: 2 tokens, such as 'e' (4), 'f' (5), have no "
        "embedding",
    )
