from __future__ import annotations

from pathlib import Path

import pytest
from torch_search import Checkpoint, beam_search

from edgeformer.exporter import reference
from edgeformer.runtime import GenerationConfig, load


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return Checkpoint(tiny_checkpoint)


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.5])
def test_many_sources_at_once_equal_the_reference_one_at_a_time(
    checkpoint: Checkpoint, words: list[str], length_penalty: float
) -> None:
    sources = [checkpoint.encode(word) for word in words]
    config = GenerationConfig(max_new_tokens=14, num_beams=4, length_penalty=length_penalty)
    together = beam_search(checkpoint.model, sources, config)
    alone = [reference.beam_search(checkpoint.model, source, 14, 4, length_penalty) for source in sources]
    assert [[ids for ids, _ in found] for found in together] == [[ids for ids, _ in found] for found in alone]
    for mine, theirs in zip(together, alone, strict=True):
        assert [score for _, score in mine] == pytest.approx([score for _, score in theirs], abs=1e-4)


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_every_rule_for_stopping_is_the_runtime_s(
    checkpoint: Checkpoint, tiny_bundle: Path, words: list[str], early_stopping: bool | str
) -> None:
    config = GenerationConfig(max_new_tokens=16, num_beams=3, early_stopping=early_stopping)  # type: ignore[arg-type]
    found = load(tiny_bundle, "ort-cpu-fp32").generate(words, config)
    assert checkpoint.say(words, config) == [list(generation.token_ids) for generation in found]


def test_the_rules_for_stopping_differ_on_these_words(checkpoint: Checkpoint, words: list[str]) -> None:
    # Otherwise the tests above would show little.
    sources = [checkpoint.encode(word) for word in words]
    rules = [
        beam_search(checkpoint.model, sources, GenerationConfig(max_new_tokens=16, num_beams=3, early_stopping=rule))
        for rule in (True, False)
    ]
    assert rules[0] != rules[1]


def test_greedy_is_the_reference_s(checkpoint: Checkpoint, words: list[str]) -> None:
    done: list[int] = []
    found = checkpoint.say(words, GenerationConfig(max_new_tokens=32), done.append)
    assert found == [reference.greedy(checkpoint.model, [checkpoint.encode(word)], 32)[0] for word in words]
    assert sum(done) == len(words)
