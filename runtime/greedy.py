"""Greedy search: the most likely token at each step. Rows that end leave the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from edgeformer.runtime.backends import ChoosingRows, Floats, Ints, Rows
from edgeformer.runtime.probabilities import log_sum_exp
from edgeformer.runtime.results import FinishReason, Hypothesis

# Rows that ended are computed along until they are this share of the batch: leaving costs a copy of the caches.
ENDED_SHARE = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How many tokens to generate, the end token among them, and which tokens begin and end a text."""

    start: int
    end: int
    least: int
    most: int


def greedy_steps(rows: Rows, limits: Limits) -> Iterator[tuple[Ints, Ints, Floats]]:
    """One item a step: which rows are still going, their new tokens, and the tokens' log-probabilities.

    Rows that can choose the likeliest token themselves do so wherever the end token may be taken.
    """
    chooser = rows if isinstance(rows, ChoosingRows) else None
    going = np.arange(len(rows.cache_lengths))  # (still going,) of the first batch's rows
    at = going  # where the session computes them
    tokens = np.full(len(going), limits.start, np.int64)  # (rows in the session,)
    for step in range(limits.most):
        if chooser is not None and step >= limits.least:
            tokens, log_probs = chooser.step_next(tokens[:, None])
        else:
            tokens, log_probs = likeliest(rows.step(tokens[:, None])[:, 0], limits.end if step < limits.least else None)
        new = tokens[at]
        yield going, new, log_probs[at]
        ended = new == limits.end
        if not np.count_nonzero(ended):
            continue
        going, at = going[~ended], at[~ended]
        if len(going) == 0:
            return
        if len(going) <= len(tokens) * (1 - ENDED_SHARE):
            rows.select(at, at)
            tokens, at = tokens[at], np.arange(len(at))


def likeliest(logits: Floats, forbidden: int | None) -> tuple[Ints, Floats]:
    """The likeliest token of each row but the forbidden one, which `logits` loses, and its log-probability."""
    normalizer = log_sum_exp(logits)[:, 0]
    if forbidden is not None:
        logits[:, forbidden] = -np.inf
    tokens = logits.argmax(-1)
    return tokens, logits[np.arange(len(tokens)), tokens] - normalizer


def greedy(rows: Rows, limits: Limits, on_step: Callable[[], None] = lambda: None) -> list[Hypothesis]:
    """Generate every row to its end.

    Args:
        rows: fresh rows, one for each source.
        on_step: called after every step.
    """
    batch = len(rows.cache_lengths)
    ids: list[list[int]] = [[] for _ in range(batch)]
    scores, reasons = np.zeros(batch), list[FinishReason](["length"] * batch)
    for going, tokens, log_probs in greedy_steps(rows, limits):
        on_step()
        scores[going] += log_probs
        for row, token in zip(going.tolist(), tokens.tolist(), strict=True):
            if token == limits.end:
                reasons[row] = "stop"
            else:
                ids[row].append(token)
    return [Hypothesis(tuple(i), s, r) for i, s, r in zip(ids, scores.tolist(), reasons, strict=True)]
