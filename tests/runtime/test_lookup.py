"""Tokens that are guessed from what stands before change no text, whatever the model, the options and the rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.backends import Floats, Ints, RewindingRows
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.greedy import collect, greedy_steps
from edgeformer.runtime.lookup import Drafts, Lookup, lookup_steps
from edgeformer.runtime.processors import processors_of
from edgeformer.runtime.prompts import Limits, Prompt
from edgeformer.runtime.results import Generation

from ..exporter.families import MODULES

GUESSED = 6
ROWS = [[5, 9, 3, 4, 8, 5, 9, 3], [7, 3], [4, 30, 11, 6, 4, 30, 11, 6, 4, 30]]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"repetition_penalty": 1.3},
    {"no_repeat_ngram_size": 3},
    {"min_new_tokens": 9, "suppress_tokens": [7, 12]},
    {"bad_words_ids": [[5, 9], [4, 30, 11]], "forced_eos_token_id": 3},
    {"max_length": 30},
]


def told(generations: Sequence[Generation]) -> list[tuple[tuple[int, ...], str]]:
    return [(one.token_ids, one.finish_reason) for one in generations]


def both(model: Model, inputs: Any, config: GenerationConfig) -> tuple[list[Generation], list[Generation]]:
    """Without guesses, and with them."""
    guessing = dataclasses.replace(config, prompt_lookup_num_tokens=GUESSED)
    alone = [model.generate([one], config)[0] for one in inputs]
    return alone, model.generate(inputs, guessing)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Model]:
    """A tiny random model of a family, in a precision of ort-cpu; made once."""
    bundles: dict[str, Path] = {}

    def get(name: str, precision: str) -> Model:
        if name not in bundles:
            folder = tmp_path_factory.mktemp("lookup")
            export_module(MODULES[name](folder / "checkpoint"), folder / "bundle")
            bundles[name] = folder / "bundle"
        if not (bundles[name] / f"ort-cpu-{precision}").exists():
            optimize_bundle(bundles[name], "ort-cpu", precision)
        return load(bundles[name], f"ort-cpu-{precision}", threads=1)

    return get


@pytest.mark.parametrize("name", ["llama", "mistral window", "t5"])
def test_texts_of_every_family_are_those_without_guesses(family: Callable[[str, str], Model], name: str) -> None:
    model = family(name, "fp32")
    for options in OPTIONS:
        config = GenerationConfig(**{"max_new_tokens": None if "max_length" in options else 40, **options})
        plain, guessed = both(model, ROWS, config)
        assert told(guessed) == told(plain), options
        assert [one.score for one in guessed] == pytest.approx([one.score for one in plain], abs=1e-3)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_text_that_repeats_itself_takes_fewer_steps(family: Callable[[str, str], Model], name: str) -> None:
    model = family(name, "fp32")
    plain, guessed = both(model, ROWS, GenerationConfig(max_new_tokens=48, min_new_tokens=48))
    assert told(guessed) == told(plain)
    assert [one.timings.steps for one in plain] == [48] * len(ROWS)
    assert min(one.timings.steps for one in guessed) < 36
    assert max(one.timings.steps for one in guessed) <= 48 + GUESSED


def test_an_end_inside_a_draft_ends_the_text(family: Callable[[str, str], Model]) -> None:
    model = family("llama", "fp32")
    (text,) = model.generate([ROWS[0]], GenerationConfig(max_new_tokens=40, min_new_tokens=40))
    for end in set(text.token_ids):
        config = GenerationConfig(max_new_tokens=40, eos_token_id=end, min_new_tokens=17)
        plain, guessed = both(model, ROWS, config)
        assert told(guessed) == told(plain)


def test_texts_reach_the_last_position(family: Callable[[str, str], Model]) -> None:
    model = family("llama", "fp32")
    most = model.sizes.max_positions
    config = GenerationConfig(min_new_tokens=most - 8, max_length=most)
    plain, guessed = both(model, [[5, 9, 3, 4, 8]], config)
    assert told(guessed) == told(plain)
    assert len(guessed[0].token_ids) == most - 5


@pytest.mark.parametrize("name", ["ort-cpu-fp32", "ort-cpu-int8", "onnx"])
def test_a_trained_models_texts_stay(loaded: Callable[[str], Model], words: list[str], name: str) -> None:
    plain, guessed = both(loaded(name), words, GenerationConfig(max_new_tokens=24))
    assert told(guessed) == told(plain)


def test_a_stream_gives_the_same(fast: Model) -> None:
    config = GenerationConfig(max_new_tokens=24, prompt_lookup_num_tokens=GUESSED)
    (whole,) = fast.generate(["aaaabbbbaaaabbbb"], GenerationConfig(max_new_tokens=24))
    assert "".join(fast.stream("aaaabbbbaaaabbbb", config)) == whole.text


class NoisyRows:
    """A row whose logits are moved at random wherever tokens in its cache were not computed one by one."""

    def __init__(self, rows: RewindingRows, noise: float) -> None:
        self.rows, self.noise, self.clean = rows, noise, 0
        self.rng, self.moved = np.random.default_rng(0), 0

    @property
    def cache_lengths(self) -> Ints:
        return self.rows.cache_lengths

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        held, new = int(self.cache_lengths[0]), input_ids.shape[1]
        logits = self.rows.step(input_ids, lengths, logits_at)
        if self.clean == held and (new == 1 or held == 0):
            self.clean += new
            return logits
        self.moved += 1
        most = self.noise * (logits.max(-1, keepdims=True) - logits.min(-1, keepdims=True))
        return (logits + most * self.rng.uniform(-0.99, 0.99, logits.shape)).astype(np.float32)

    def rewind(self, lengths: Ints) -> None:
        self.rows.rewind(lengths)
        self.clean = min(self.clean, int(lengths[0]))

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        self.rows.select(rows, sources)

    def close(self) -> None:
        self.rows.close()


@pytest.mark.parametrize("noise", [0.001, 0.02, 0.1])
@pytest.mark.parametrize("options", [{}, {"repetition_penalty": 1.5}], ids=str)
def test_noise_up_to_what_was_allowed_changes_no_token(
    family: Callable[[str, str], Model], noise: float, options: dict[str, Any]
) -> None:
    model = family("llama", "fp32")
    limits = Limits((2,), least=40, most=48)
    processors = processors_of(GenerationConfig(**options), limits, model.sizes.vocab_size)
    moved = 0
    for row in ROWS:
        prompt = Prompt.of([row])
        expected = greedy_steps(model.executor.start_empty(1, 64), prompt, limits, processors)
        rows = NoisyRows(model.executor.start_empty(1, 64), noise)  # type: ignore[arg-type]
        found = lookup_steps(rows, prompt, limits, Lookup(GUESSED, noise), processors)
        assert [one.token_ids for one in collect(found, 1, (2,))] == [
            one.token_ids for one in collect(expected, 1, (2,))
        ]
        moved += rows.moved
    assert moved > 0


def test_rows_of_a_batch_are_guessed_alone(family: Callable[[str, str], Model]) -> None:
    model = family("llama", "fp32")
    config = GenerationConfig(max_new_tokens=20, prompt_lookup_num_tokens=GUESSED)
    together = model.generate(ROWS, config, batch_size=3)
    assert told(together) == told([model.generate([row], config)[0] for row in ROWS])
    assert [one.timings.steps for one in together] == [model.generate([row], config)[0].timings.steps for row in ROWS]


# Drafts


def test_drafts_follow_the_longest_run_that_came_last() -> None:
    drafts = Drafts([1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3], 4)
    assert drafts.next(9) == [40, 9, 2, 3]
    assert drafts.next(2) == [40, 9]
    other = Drafts([1, 2, 3, 40, 9, 2, 3, 50, 8, 2, 3], 4)
    assert other.next(9) == [50, 8, 2, 3]
    assert Drafts([1, 2, 3], 4).next(9) == []
    assert Drafts([4], 4).next(9) == []


def test_drafts_shrink_where_they_fail_and_grow_where_they_hold() -> None:
    drafts = Drafts([5, 6] * 8, 8)
    drafts.judged(0)
    assert len(drafts.next(9)) == 1
    drafts.judged(1)
    assert len(drafts.next(9)) == 2  # three, but only two follow
    for token in (5, 6, 7):
        drafts.append(token)
    assert drafts.next(9) == []


# What is refused


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_beams": 2}, "prompt_lookup_num_tokens is 3, but only greedy search guesses tokens, and num_beams is 2"),
        ({"do_sample": True}, "prompt_lookup_num_tokens is 3, but only greedy search .* and do_sample is True"),
    ],
)
def test_only_greedy_search_guesses(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        GenerationConfig(prompt_lookup_num_tokens=3, **options)
    assert GenerationConfig(prompt_lookup_num_tokens=3).changed(**options) == GenerationConfig(**options)


def test_what_cannot_take_tokens_back_refuses(fast: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fast.executor, "step_noise")
    with pytest.raises(OptionError, match="cannot take back tokens that were guessed: set it to 0, or run an artifact"):
        fast.generate(["abc"], GenerationConfig(prompt_lookup_num_tokens=3))
