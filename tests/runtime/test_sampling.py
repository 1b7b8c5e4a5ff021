"""What may be drawn is what Hugging Face's transformers leave; how often, what the probabilities say."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from edgeformer.runtime import GenerationConfig, Model
from edgeformer.runtime.backends import Floats
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.sampling import Sampler, input_seeds

CUTS: list[dict[str, Any]] = [
    {"top_k": 0},
    {"top_k": 0, "temperature": 0.3},
    {},
    {"top_k": 1},
    {"top_k": 5, "temperature": 2.5},
    {"top_k": 0, "top_p": 0.9},
    {"top_k": 0, "top_p": 0.5, "temperature": 0.5},
    {"top_k": 0, "top_p": 0.999, "temperature": 3.0},
    {"top_k": 0, "top_p": 0.01},
    {"top_k": 0, "min_p": 0.1},
    {"top_k": 0, "min_p": 0.01, "temperature": 2.0},
    {"top_k": 0, "min_p": 1.0},
    {"top_k": 0, "top_p": 0.8, "min_p": 0.05},
    {"top_k": 20, "top_p": 0.7, "min_p": 0.02, "temperature": 1.5},
]


def sampler(rows: int = 1, seed: int = 0, **options: Any) -> Sampler:
    return Sampler(GenerationConfig(do_sample=True, **options), input_seeds(seed, rows))


def probabilities(logits: Floats, **options: Any) -> Floats:
    """Of each token, (rows, vocab_size)."""
    tokens, weights = sampler(len(logits), **options).candidates(logits)
    weights = np.where(weights < options.get("min_p", 0), 0, weights).astype(np.float64)
    found = np.zeros(logits.shape)
    if tokens is None:
        found += weights[:, : logits.shape[1]]
    else:
        np.add.at(found, (np.arange(len(logits))[:, None], tokens), weights)
    return found / found.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("options", CUTS, ids=str)
@pytest.mark.parametrize(("vocab_size", "spread"), [(7, 1.0), (300, 2.0), (20_000, 3.0), (20_000, 0.3)])
def test_probabilities_are_those_of_transformers(options: dict[str, Any], vocab_size: int, spread: float) -> None:
    logits = np.random.default_rng(vocab_size).normal(0, spread, (3, vocab_size)).astype(np.float32)
    logits[1, ::2] = -np.inf  # suppressed
    expected = warped(logits, **options)
    found = probabilities(logits, **options)
    assert ((found > 0) == (expected > 0)).mean() > 1 - 1e-4  # the last token of top_p hangs on how sums are rounded
    np.testing.assert_allclose(found, expected, atol=2e-4 * expected.max(), rtol=1e-3)


def warped(logits: Floats, **options: Any) -> Any:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    scores = torch.from_numpy(logits.astype(np.float64))
    warpers: list[Any] = [transformers.TemperatureLogitsWarper(options.get("temperature", 1.0))]
    if top_k := options.get("top_k", 50):
        warpers.append(transformers.TopKLogitsWarper(top_k))
    if options.get("top_p", 1.0) < 1:
        warpers.append(transformers.TopPLogitsWarper(options["top_p"]))
    if "min_p" in options:
        warpers.append(transformers.MinPLogitsWarper(options["min_p"]))
    for warp in warpers:
        scores = warp(None, scores)
    return scores.softmax(-1).numpy()


@pytest.mark.parametrize("options", [{"top_k": 0}, {"top_k": 3}, {"temperature": 0.5}, {"top_p": 0.8}], ids=str)
def test_tokens_come_as_often_as_their_probabilities_say(options: dict[str, Any]) -> None:
    logits = np.array([[1.0, 0.2, -0.5, 0.9, -np.inf, 0.0]], np.float32)
    expected = probabilities(logits, **options)[0]
    draws = 8000
    one = sampler(seed=11, **options)
    counts = Counter(int(one.draw(logits.copy())[0]) for _ in range(draws))
    assert set(counts) == set(np.flatnonzero(expected).tolist())
    chi_square = sum((counts[token] - draws * expected[token]) ** 2 / (draws * expected[token]) for token in counts)
    assert (
        chi_square < 20.5
    )  # of up to 5 degrees of freedom: one seed in a thousand would be above, and this one is not


def test_a_large_vocabulary_is_drawn_from_in_the_order_of_its_ids() -> None:
    logits = np.random.default_rng(1).normal(0, 1, (2, 3000)).astype(np.float32)
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    sums = weights.cumsum(axis=1)
    one, seeds = sampler(2, top_k=0), input_seeds(0, 2)
    streams = [np.random.default_rng((seed, 0)) for seed in seeds]
    for _ in range(300):
        expected = [int((row <= stream.random() * row[-1]).sum()) for row, stream in zip(sums, streams, strict=True)]
        assert np.abs(one.draw(logits) - expected).max() <= 1  # float32 sums may pass a point one token earlier


@pytest.mark.parametrize("options", CUTS, ids=str)
def test_what_is_drawn_can_be(options: dict[str, Any]) -> None:
    logits = np.random.default_rng(2).normal(0, 2, (4, 700)).astype(np.float32)
    logits[2, 100:] = -np.inf
    allowed, one = probabilities(logits, **options), sampler(4, **options)
    for _ in range(50):
        drawn = one.draw(logits.copy())
        assert (allowed[np.arange(4), drawn] > 0).all()


def test_a_row_draws_what_it_draws_alone() -> None:
    logits = np.random.default_rng(3).normal(0, 1, (5, 900)).astype(np.float32)
    for options in CUTS:
        seeds = input_seeds(9, 5)
        config = GenerationConfig(do_sample=True, **options)
        together = Sampler(config, seeds)
        alone = [Sampler(config, [seed]) for seed in seeds]
        for _ in range(20):
            expected = [int(one.draw(logits[at : at + 1].copy())[0]) for at, one in enumerate(alone)]
            assert together.draw(logits.copy()).tolist() == expected, options


def test_seeds_of_inputs_do_not_depend_on_the_parts_that_inputs_come_in() -> None:
    whole = input_seeds(7, 6)
    assert whole == input_seeds(7, 2) + input_seeds(7, 4, first=2)
    assert whole[0] == 7
    assert len({*whole, *input_seeds(8, 6)}) == 12
    assert input_seeds((4, 5), 2) == [4, 5]
    assert input_seeds(None, 3) != input_seeds(None, 3)


# Through a model


SAMPLED: dict[str, Any] = {"do_sample": True, "max_new_tokens": 12, "seed": 5}


def ids(model: Model, inputs: Any, batch_size: int = 64, **options: Any) -> list[list[tuple[int, ...]]]:
    found = model.generate(inputs, GenerationConfig(**options), batch_size=batch_size)
    return [[one.token_ids for one in generation.hypotheses] for generation in found]


def test_a_seed_gives_the_same_texts_in_any_batch(fast: Model, words: list[str]) -> None:
    words = words[:7]
    expected = ids(fast, words, **SAMPLED)
    assert expected == ids(fast, words, **SAMPLED)
    assert expected == ids(fast, words, batch_size=1, **SAMPLED)
    assert expected == ids(fast, words, batch_size=3, **SAMPLED)
    assert expected != ids(fast, words, **{**SAMPLED, "seed": 6})
    assert ids(fast, words, **{**SAMPLED, "seed": None}) != ids(fast, words, **{**SAMPLED, "seed": None})


def test_an_input_gets_what_it_gets_alone_with_its_seed(fast: Model, words: list[str]) -> None:
    words, seeds = words[:5], [3, 1, 4, 1, 5]
    together = ids(fast, words, **{**SAMPLED, "seed": seeds})
    assert together == [
        ids(fast, word, **{**SAMPLED, "seed": seed})[0] for word, seed in zip(words, seeds, strict=True)
    ]
    one_number = ids(fast, words, **SAMPLED)
    assert one_number == ids(fast, words, **{**SAMPLED, "seed": input_seeds(5, 5)})
    with pytest.raises(OptionError, match="seed has 5 numbers, and there are 2 inputs"):
        fast.generate(words[:2], GenerationConfig(do_sample=True, seed=seeds))


def test_several_texts_of_an_input_are_drawn_apart(fast: Model, words: list[str]) -> None:
    several = ids(fast, words[:3], num_return_sequences=6, **SAMPLED)
    assert [len(texts) for texts in several] == [6, 6, 6]
    assert all(len(set(texts)) > 1 for texts in several)
    assert [texts[:1] for texts in several] == ids(fast, words[:3], **SAMPLED)
    assert several == ids(fast, words[:3], batch_size=2, num_return_sequences=6, **SAMPLED)


@pytest.mark.parametrize("options", [{"temperature": 1e-6}, {"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}], ids=str)
def test_the_likeliest_are_those_of_greedy_search(fast: Model, words: list[str], options: dict[str, Any]) -> None:
    greedy = fast.generate(words, GenerationConfig(max_new_tokens=12))
    drawn = fast.generate(words, GenerationConfig(do_sample=True, max_new_tokens=12, **options))
    assert [one.token_ids for one in drawn] == [one.token_ids for one in greedy]
    assert [one.score for one in drawn] == pytest.approx([one.score for one in greedy], abs=1e-4)


@pytest.mark.parametrize(
    "change", [{"temperature": 0.2}, {"top_k": 2}, {"top_p": 0.2}, {"min_p": 0.9}, {"do_sample": False, "seed": None}],
    ids=str,
)  # fmt: skip
def test_every_option_of_sampling_changes_the_output(fast: Model, words: list[str], change: dict[str, Any]) -> None:
    assert ids(fast, words[:12], **SAMPLED) != ids(fast, words[:12], **{**SAMPLED, **change})


def test_constraints_hold_for_what_is_drawn(fast: Model, words: list[str]) -> None:
    forbidden = list(range(4, 40))
    for (text,) in ids(fast, words[:8], suppress_tokens=forbidden, no_repeat_ngram_size=1, min_new_tokens=3, **SAMPLED):
        assert len(text) >= 3
        assert len(set(text)) == len(text)
        assert not set(text) & set(forbidden)


def test_a_stream_is_what_generate_gives(fast: Model, words: list[str]) -> None:
    config = GenerationConfig(**SAMPLED)
    for word in words[:4]:
        assert "".join(fast.stream(word, config)) == fast.generate(word, config)[0].text
    with pytest.raises(OptionError, match="num_return_sequences is 2: a stream is one text"):
        fast.stream("word", GenerationConfig(num_return_sequences=2, **SAMPLED))
