"""Decoding without a cache: the reference that every artifact is compared with."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch

from edgeformer.exporter.reference import beam_search, greedy, log_probs, pad
from edgeformer.models.transformer import Transformer

BUDGET = 8  # tokens; more than a word is long, so that some rows end and some do not


def words(number: int = 40) -> list[list[int]]:
    rng = random.Random(5)
    return [[rng.randrange(3, 29) for _ in range(rng.randint(1, 6))] for _ in range(number)]


def by_hand(model: Transformer, source: list[int], budget: int = BUDGET) -> list[int]:
    """One row, one token at a time, nothing shared between the steps."""
    said: list[int] = []
    while len(said) < budget:
        target = torch.tensor([[model.config.bos_token_id, *said]])
        scores = model(torch.tensor([source]), torch.tensor([len(source)]), target)[0, -1].tolist()
        best = scores.index(max(scores))
        if best == model.config.eos_token_id:
            break
        said.append(best)
    return said


# Greedy


def test_a_batch_equals_a_loop_by_hand_over_each_row(half_trained: Transformer) -> None:
    said = greedy(half_trained, words(), BUDGET)
    assert said == [by_hand(half_trained, word) for word in words()]
    lengths = {len(row) for row in said}
    assert len(lengths) >= 4, f"the rows should end at many lengths to show anything, got {lengths}"
    assert BUDGET in lengths, "some row should reach the limit"


def test_a_batch_equals_each_row_alone(half_trained: Transformer) -> None:
    said = greedy(half_trained, words(), BUDGET)
    assert said == [greedy(half_trained, [word], BUDGET)[0] for word in words()]
    assert said[::-1] == greedy(half_trained, words()[::-1], BUDGET)


def test_a_smaller_budget_gives_the_beginning_of_the_same(half_trained: Transformer) -> None:
    said = greedy(half_trained, words(), BUDGET)
    for budget in range(BUDGET):
        assert greedy(half_trained, words(), budget) == [row[:budget] for row in said]


def test_the_end_token_is_left_out(half_trained: Transformer) -> None:
    assert not any(half_trained.config.eos_token_id in row for row in greedy(half_trained, words(), BUDGET))


def test_a_model_whose_start_token_is_its_end_token_decodes(half_trained: Transformer) -> None:
    """As in many checkpoints: decoding starts from the end token, which must not end it."""
    config = half_trained.config
    other = Transformer(type(config).from_dict({**config.to_dict(), "bos_token_id": config.eos_token_id}))
    other.load_state_dict(half_trained.state_dict())
    other.double().eval()
    said = greedy(other, words(), BUDGET)
    assert said == [by_hand(other, word) for word in words()]
    assert any(said)


# Beams


def test_one_beam_is_greedy(half_trained: Transformer) -> None:
    said = [beam_search(half_trained, word, BUDGET, num_beams=1)[0][0] for word in words()]
    assert said == greedy(half_trained, words(), BUDGET)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
def test_with_beams_for_all_sequences_it_finds_them_all(
    make_model: Callable[..., Transformer], length_penalty: float
) -> None:
    model, budget, others = make_model(vocab_size=5), 3, [0, 1, 3, 4]
    expected = {}
    for length in range(budget + 1):
        for ids in itertools.product(others, repeat=length):
            # One that reaches the limit has no end token.
            parts = log_probs(model, [3, 4], ids)[:budget]
            expected[ids] = sum(parts) / len(parts) ** length_penalty
    found = beam_search(model, [3, 4], budget, num_beams=5**3, length_penalty=length_penalty)
    assert {tuple(ids): score for ids, score in found} == pytest.approx(expected, abs=1e-5)
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)


def test_the_n_best_are_distinct_and_scored_by_their_log_probabilities(half_trained: Transformer) -> None:
    for word in words(10):
        found = beam_search(half_trained, word, BUDGET, num_beams=4, length_penalty=1.0)
        assert len({tuple(ids) for ids, _ in found}) == len(found) == 4
        for ids, score in found:
            parts = log_probs(half_trained, word, ids)[:BUDGET]
            assert score == pytest.approx(sum(parts) / len(parts), abs=1e-5)


def test_more_beams_find_no_less_likely_words(half_trained: Transformer) -> None:
    """Not so for each word, but over all of them."""
    likely = [sum(beam_search(half_trained, word, BUDGET, beams, 0.0)[0][1] for word in words()) for beams in (1, 4)]
    assert likely[0] < likely[1]


# Scores


def test_log_probs_are_those_of_one_token_after_the_other(half_trained: Transformer) -> None:
    source, target, config = [5, 9, 3], [3, 7, 5], half_trained.config
    expected = []
    for at, token in enumerate([*target, config.eos_token_id]):
        given = torch.tensor([[config.bos_token_id, *target[:at]]])
        logits = half_trained(torch.tensor([source]), torch.tensor([3]), given)[0, -1]
        expected.append((logits[token] - logits.logsumexp(-1)).item())
    assert log_probs(half_trained, source, target) == pytest.approx(expected, abs=1e-9)


# Padding

ROWS = [
    [[5]],
    [[5, 6], [7]],
    [[1], [2, 3, 4], [5, 6]],
    [[], [5]],
    [[], []],
]


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_rows_are_padded_on_the_right(rows: list[list[int]]) -> None:
    ids, lengths = pad(rows, fill=9)
    longest = max(map(len, rows))
    assert ids.tolist() == [row + [9] * (longest - len(row)) for row in rows]
    assert lengths.tolist() == [len(row) for row in rows]
    assert ids.dtype == lengths.dtype == torch.int64
