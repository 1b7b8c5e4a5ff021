"""Options mean what they mean in Hugging Face's transformers, checked against its `generate` on the same weights."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from edgeformer.runtime import GenerationConfig, Model

pytest.importorskip("transformers")

from .marian import generated, to_marian  # needs transformers

if TYPE_CHECKING:
    from transformers import MarianMTModel

    from edgeformer.models.transformer import Transformer

BUDGET = 7  # more tokens than most words need, fewer than some do

NEVER_ENDS = pytest.param({"max_new_tokens": 4, "min_new_tokens": 4})
GREEDY = [
    {"max_new_tokens": BUDGET},
    {"max_new_tokens": 3},
    {"max_new_tokens": BUDGET, "min_new_tokens": 4},
    NEVER_ENDS,
]
SEARCHES = [
    {"num_beams": beams, "length_penalty": penalty, "early_stopping": stopping, "num_return_sequences": beams}
    for beams, penalty, stopping in itertools.product((2, 3, 4), (0.0, 0.6, 1.0, 2.0), (True, False, "never"))
]
MORE_SEARCHES = [
    {"num_beams": 4},
    {"num_beams": 4, "num_return_sequences": 2, "min_new_tokens": 4},
    {"num_beams": 3, "num_return_sequences": 3, "length_penalty": -1.0, "early_stopping": "never"},
    {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 2},
    {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 1},
]


@pytest.fixture(scope="module")
def marian(pytorch: Transformer) -> MarianMTModel:
    return to_marian(pytorch)


@pytest.fixture(scope="module")
def ragged(sources: list[list[int]]) -> list[list[int]]:
    """Ten sources, of one token up to the longest."""
    by_length = sorted(sources, key=len)
    return [by_length[at * (len(by_length) - 1) // 9] for at in range(10)]


def same(model: Model, marian: MarianMTModel, source: list[int], options: dict[str, Any]) -> None:
    options = {"max_new_tokens": BUDGET, **options}
    expected = generated(marian, source, **options)
    found = model.generate([source], GenerationConfig(**options))[0].hypotheses
    assert [hypothesis.token_ids for hypothesis in found] == [ids for ids, _ in expected], options
    if options.get("num_beams", 1) > 1:
        scores = [score for _, score in expected]
        assert [hypothesis.score for hypothesis in found] == pytest.approx(scores, abs=1e-4), options


@pytest.mark.parametrize("options", GREEDY, ids=str)
def test_greedy_search_gives_the_same_ids(
    fast: Model, marian: MarianMTModel, ragged: list[list[int]], options: dict[str, Any]
) -> None:
    for source in ragged:
        same(fast, marian, source, options)


@pytest.mark.parametrize("stopping", [True, False, "never"])
def test_beam_search_gives_the_same_ids_and_scores(
    fast: Model, marian: MarianMTModel, ragged: list[list[int]], stopping: bool | str
) -> None:
    searches = [options for options in SEARCHES if options["early_stopping"] == stopping]
    for options, offset in zip(searches, itertools.cycle(range(3)), strict=False):
        for source in ragged[offset::3]:
            same(fast, marian, source, options)


@pytest.mark.parametrize("options", MORE_SEARCHES, ids=str)
def test_beam_search_under_limits_gives_the_same_ids_and_scores(
    exact: Model, marian: MarianMTModel, ragged: list[list[int]], options: dict[str, Any]
) -> None:
    for source in ragged[1::2]:
        same(exact, marian, source, options)
