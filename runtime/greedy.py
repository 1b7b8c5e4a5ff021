"""Greedy search: the most likely token at each step. Rows that end leave the batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from edgeformer.runtime.backends import ChoosingRows, Floats, Ints, Rows
from edgeformer.runtime.probabilities import log_sum_exp
from edgeformer.runtime.prompts import Limits, Prompt
from edgeformer.runtime.results import FinishReason, Hypothesis

# Rows that ended are computed along until they are this share of the batch: leaving costs a copy of the caches.
ENDED_SHARE = 0.1


def greedy_steps(rows: Rows, prompt: Prompt, limits: Limits) -> Iterator[tuple[Ints, Ints, Floats]]:
    """One item a step: which rows are still going, their new tokens, and the tokens' log-probabilities.

    Rows that can choose the likeliest token themselves do so wherever the end token may be taken.

    Args:
        rows: fresh rows, as many as the prompt has.
    """
    chooser = rows if isinstance(rows, ChoosingRows) else None
    going = np.arange(len(prompt.ids))  # (still going,) of the first batch's rows
    at = going  # where the session computes them
    most = limits.most_new(prompt)
    inputs, lengths = prompt.ids, prompt.lengths if prompt.is_ragged else None
    for step in itertools.count():
        if chooser is not None and step >= limits.least and lengths is None:
            tokens, log_probs = chooser.step_next(inputs)
        else:
            tokens, log_probs = likeliest(rows.step(inputs, lengths)[:, 0], limits.ends if step < limits.least else ())
        lengths = None
        new = tokens[at]
        yield going, new, log_probs[at]
        left = ~limits.is_end(new) & (most[going] > step + 1)
        if not left.all():
            full = (most[going[~left]] <= step + 1).any()  # a row that has no room to be computed along
            going, at = going[left], at[left]
            if len(going) == 0:
                return
            if full or len(going) <= len(tokens) * (1 - ENDED_SHARE):
                rows.select(at, at)
                tokens, at = tokens[at], np.arange(len(at))
        inputs = tokens[:, None]


def likeliest(logits: Floats, forbidden: Sequence[int] = ()) -> tuple[Ints, Floats]:
    """The likeliest token of each row but the forbidden ones, which `logits` loses, and its log-probability."""
    normalizer = log_sum_exp(logits)[:, 0]
    for token in forbidden:
        logits[:, token] = -np.inf
    tokens = logits.argmax(-1)
    return tokens, logits[np.arange(len(tokens)), tokens] - normalizer


def greedy(rows: Rows, prompt: Prompt, limits: Limits, on_step: Callable[[], None] = lambda: None) -> list[Hypothesis]:
    """Generate every row to its end.

    Args:
        rows: fresh rows, as many as the prompt has.
        on_step: called after every step.
    """
    batch = len(prompt.ids)
    ids: list[list[int]] = [[] for _ in range(batch)]
    scores, reasons = np.zeros(batch), list[FinishReason](["length"] * batch)
    for going, tokens, log_probs in greedy_steps(rows, prompt, limits):
        on_step()
        scores[going] += log_probs
        for row, token in zip(going.tolist(), tokens.tolist(), strict=True):
            if token in limits.ends:
                reasons[row] = "stop"
            else:
                ids[row].append(token)
    return [Hypothesis(tuple(i), s, r) for i, s, r in zip(ids, scores.tolist(), reasons, strict=True)]
