"""`score` gives PyTorch's log-probability of each target token and of the end, one row or many."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edgeformer.runtime import Model
from edgeformer.runtime.errors import InputError, OptionError

if TYPE_CHECKING:
    from edgeformer.models.transformer import Transformer


@pytest.fixture(scope="module")
def targets(sources: list[list[int]]) -> list[list[int]]:
    """For each source, phonemes of another length: none, one, more than the first cache holds, as many as fit."""
    rng = random.Random(1)
    lengths = [0, 1, 16, 17, 31, *(rng.randint(0, 12) for _ in sources[5:])]
    return [[rng.randrange(30, 69) for _ in range(length)] for length in lengths]


def test_scores_are_pytorchs_log_probabilities(
    exact: Model, pytorch: Transformer, sources: list[list[int]], targets: list[list[int]]
) -> None:
    from edgeformer.exporter import reference

    found = exact.score(sources, targets)
    for source, target, score in zip(sources, targets, found, strict=True):
        expected = reference.log_probs(pytorch, source, target)
        assert score.token_log_probs == pytest.approx(expected, abs=1e-4)
        assert score.log_prob == pytest.approx(sum(expected), abs=1e-3)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_a_ragged_batch_gives_each_pair_what_it_gets_alone(
    model: Model, sources: list[list[int]], targets: list[list[int]], batch_size: int
) -> None:
    some = slice(0, 16)
    together = model.score(sources[some], targets[some], batch_size=batch_size)
    for source, target, score in zip(sources[some], targets[some], together, strict=True):
        (alone,) = model.score([source], [target])
        assert score.token_log_probs == pytest.approx(alone.token_log_probs, abs=1e-4)


def test_each_token_has_a_log_probability_and_so_has_the_end(model: Model) -> None:
    (score,) = model.score(["word"], ["W ER D"])
    assert len(score.token_log_probs) == 4
    assert all(part <= 0 for part in score.token_log_probs)
    assert score.log_prob == sum(score.token_log_probs)


def test_probabilities_of_all_continuations_sum_to_one(exact: Model) -> None:
    vocabulary = range(exact.sizes.vocab_size)
    found = exact.score([[5, 6, 2]] * len(vocabulary), [[30, token] for token in vocabulary])
    assert sum(np.exp(score.token_log_probs[1]) for score in found) == pytest.approx(1, abs=1e-5)


def test_texts_and_their_ids_are_the_same_target(fast: Model, words: list[str], sources: list[list[int]]) -> None:
    text, ids = "HH AH L OW", fast.text.encode_target("HH AH L OW")
    assert fast.score(words[:2], [text, ""]) == fast.score(sources[:2], [ids, []])
    assert fast.score(words[:1], [np.array(ids)]) == fast.score(words[:1], [ids])


def test_the_empty_target_is_the_end_alone(fast: Model, pytorch: Transformer) -> None:
    from edgeformer.exporter import reference

    (score,) = fast.score([[5, 2]], [[]])
    assert score.token_log_probs == pytest.approx(reference.log_probs(pytorch, [5, 2], []), abs=1e-4)


@pytest.mark.parametrize(
    ("inputs", "targets", "reason"),
    [
        ([], [], "there are no inputs"),
        (["word"], [], "1 inputs need as many targets, in a list"),
        (["word"], ["W", "ER"], "1 inputs need as many targets, in a list"),
        (["word"], "W ER D", "1 inputs need as many targets, in a list"),
        (["a", "b"], "AB", "2 inputs need as many targets, in a list"),
        (["word"], ["W er D"], "input 'W er D' holds what the model does not know: 'er' at 2; known: AA AE"),
        (["word"], [[30] * 32], "a target has 32 tokens, the model has 32 positions"),
        (["word"], [[30, 69]], "token ids [69] are outside the vocabulary of 69"),
        (["word"], [[-1]], "token ids [-1] are outside the vocabulary of 69"),
        (["w0rd"], ["W"], "holds what the model does not know: '0' at 1"),
    ],
    ids=str,
)
def test_what_cannot_be_scored_is_refused(fast: Model, inputs: Any, targets: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        fast.score(inputs, targets)
    assert reason in str(caught.value)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_size_below_one_is_refused(fast: Model, batch_size: int) -> None:
    with pytest.raises(OptionError, match=f"batch_size is {batch_size}, expected at least 1"):
        fast.score(["word"], ["W"], batch_size=batch_size)
