"""What a search takes of logits in C, beside numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from edgeformer.runtime import native
from edgeformer.runtime.beam import best
from edgeformer.runtime.native.choosing import Choosing
from edgeformer.runtime.probabilities import log_softmax

from .native_sessions import Array

pytestmark = pytest.mark.skipif(native.instructions() is None, reason=f"own operators: {native.unused()}")

SIZES = [(1, 69), (4, 69), (3, 5), (6, 8), (7, 1000), (4, 49155)]


@pytest.fixture
def choosing() -> Choosing:
    found = Choosing.here()
    assert found is not None
    return found


def logits_of(rows: int, vocab_size: int) -> Array:
    return (np.random.default_rng(vocab_size).normal(size=(rows, vocab_size)) * 5).astype(np.float32)


@pytest.mark.parametrize(("rows", "vocab_size"), SIZES)
def test_the_likeliest_token_is_the_largest_logit(choosing: Choosing, rows: int, vocab_size: int) -> None:
    logits = logits_of(rows, vocab_size)
    tokens, log_probs = choosing.likeliest(logits)
    assert tokens.tolist() == logits.argmax(-1).tolist()
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum(-1, keepdims=True))
    np.testing.assert_allclose(log_probs, exact[np.arange(rows), tokens], rtol=0, atol=2e-6)


def test_of_equals_the_first_is_taken(choosing: Choosing) -> None:
    logits = np.zeros((2, 19), np.float32)
    logits[0, [4, 17]] = logits[1, 18] = 3
    assert choosing.likeliest(logits)[0].tolist() == [4, 18]
    assert [place for _, place in choosing.continuations(logits, np.zeros(2, np.float32), 2, 3)[0]] == [4, 17, 0]


def test_rows_may_lie_apart(choosing: Choosing) -> None:
    wide = logits_of(3, 200)
    tokens, log_probs = choosing.likeliest(wide[:, :69])
    alone = choosing.likeliest(wide[:, :69].copy())
    assert tokens.tolist() == alone[0].tolist()
    assert log_probs.tolist() == alone[1].tolist()


@pytest.mark.parametrize("made", [lambda x: x.astype(np.float64), lambda x: np.asfortranarray(x), lambda x: x[:, ::2]])
def test_numbers_of_another_kind_are_read_as_what_they_are(choosing: Choosing, made: Callable[[Array], Array]) -> None:
    logits = made(logits_of(3, 70))
    plain = np.ascontiguousarray(logits, np.float32)
    assert [found.tolist() for found in choosing.likeliest(logits)] == [f.tolist() for f in choosing.likeliest(plain)]
    scores = np.array([-1.0, -2.0, -0.5])
    found, expected = (choosing.continuations(each, scores, 1, 5) for each in (logits, plain))
    assert found == expected == choosing.continuations(plain, scores.astype(np.float32), 1, 5)


def test_what_it_found_before_stays(choosing: Choosing) -> None:
    first = choosing.likeliest(logits_of(2, 69))
    before = [array.copy() for array in first]
    choosing.likeliest(logits_of(2, 70))
    assert all((now == then).all() for now, then in zip(first, before, strict=True))


@pytest.mark.parametrize(("rows", "vocab_size"), SIZES)
@pytest.mark.parametrize("count", [2, 8])
def test_continuations_are_the_best_sums(choosing: Choosing, rows: int, vocab_size: int, count: int) -> None:
    logits, scores = logits_of(rows, vocab_size), -np.arange(rows, dtype=np.float32)
    totals = log_softmax(logits) + scores[:, None]
    for sources in {1, rows}:
        found = choosing.continuations(logits, scores, sources, count)
        expected = [best(values, count) for values in totals.reshape(sources, -1)]
        for mine, other in zip(found, expected, strict=True):
            possible = [(score, place) for score, place in mine if score > -math.inf]
            assert [place for _, place in possible] == [place for _, place in other]
            np.testing.assert_allclose([s for s, _ in possible], [s for s, _ in other], rtol=0, atol=2e-5)
            assert len(mine) == count


def test_what_is_impossible_is_no_continuation(choosing: Choosing) -> None:
    logits = np.full((2, 9), -np.inf, np.float32)
    logits[0, 3], logits[1, 8] = 1, 2
    scores = np.array([-4, -math.inf], np.float32)
    (found,) = choosing.continuations(logits, scores, 1, 4)
    assert found[0] == (-4.0, 3)
    assert [score for score, _ in found[1:]] == [-math.inf] * 3
