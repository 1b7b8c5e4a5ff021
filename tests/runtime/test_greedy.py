"""Greedy search gives the same whether the session chooses the tokens or the search does."""

from __future__ import annotations

import numpy as np
import pytest

from edgeformer.runtime import GenerationConfig, Model
from edgeformer.runtime.backends import ChoosingRows, Floats, Ints, Rows
from edgeformer.runtime.greedy import collect, greedy_steps
from edgeformer.runtime.probabilities import log_softmax
from edgeformer.runtime.processors import processors_of
from edgeformer.runtime.prompts import Limits, Prompt


class Choosing:
    """Rows that choose the likeliest token themselves, and count who was asked."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.chose, self.gave_logits = rows, 0, 0

    @property
    def cache_lengths(self) -> Ints:
        return self.rows.cache_lengths

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        self.gave_logits += 1
        return self.rows.step(input_ids, lengths, logits_at)

    def step_next(self, input_ids: Ints) -> tuple[Ints, Floats]:
        self.chose += 1
        log_probs = log_softmax(self.rows.step(input_ids)[:, 0])
        ids = log_probs.argmax(-1)
        return ids, log_probs[np.arange(len(ids)), ids]

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        self.rows.select(rows, sources)

    def close(self) -> None:
        self.rows.close()


@pytest.mark.parametrize("least", [0, 4])
def test_tokens_chosen_by_the_session_are_those_that_the_search_would_take(
    fast: Model, sources: list[list[int]], least: int
) -> None:
    limits = Limits(fast.tokens.ends, least, 12)
    processors = processors_of(GenerationConfig(), limits, fast.sizes.vocab_size)
    prompt = Prompt.of([[fast.tokens.start]] * len(sources))
    steps = greedy_steps(fast.executor.start(sources, 12), prompt, limits, processors)
    expected = collect(steps, len(sources), limits.ends)
    rows = Choosing(fast.executor.start(sources, 12))
    assert isinstance(rows, ChoosingRows)
    found = collect(greedy_steps(rows, prompt, limits, processors), len(sources), limits.ends)
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert [one.finish_reason for one in found] == [one.finish_reason for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
    assert len({len(one.token_ids) for one in found}) > 2
    # While the end token is forbidden, the likeliest token may be that one: the search chooses then.
    assert rows.gave_logits == least
    assert rows.chose > 0


def test_rows_without_a_choice_of_their_own_are_not_taken_for_such(fast: Model) -> None:
    assert not isinstance(fast.executor.start([[3, 2]], 4), ChoosingRows)
