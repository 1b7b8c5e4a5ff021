"""Beam search, with the meaning that Hugging Face gives it.

At each step the 2 * num_beams best continuations of a source are looked at. One that ends is a finished hypothesis if
it is among the best num_beams of them; the best num_beams that do not end go on. The best num_beams finished
hypotheses are kept, by log-probability / tokens ** length_penalty.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.backends import Floats, Ints, Rows
from edgeformer.runtime.greedy import Limits
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.probabilities import log_softmax
from edgeformer.runtime.results import Hypothesis


def beam_search(
    rows: Rows, limits: Limits, options: GenerationConfig, on_step: Callable[[], None] = lambda: None
) -> list[list[Hypothesis]]:
    """The num_return_sequences best hypotheses of each source, best first.

    Args:
        rows: fresh rows, one for each source.
        on_step: called after every step.
    """
    search = Search(len(rows.cache_lengths), limits, options)
    while True:
        logits = rows.step(search.tokens.reshape(-1, 1))[:, 0]
        on_step()
        rows_kept, sources_kept = search.advance(logits)
        if len(rows_kept) == 0:
            return search.results
        rows.select(rows_kept, sources_kept)


def best(values: Floats, count: int) -> Ints:
    """Indices of the `count` largest of each row, largest first."""
    count = min(count, values.shape[1])
    indices = np.argpartition(values, values.shape[1] - count, axis=1)[:, -count:]
    order = np.argsort(-np.take_along_axis(values, indices, 1), axis=1, kind="stable")
    return np.take_along_axis(indices, order, 1)


@dataclasses.dataclass(slots=True)
class Finished:
    """The best finished hypotheses of each source still searched: (sources, num_beams), best first; -inf where none."""

    scores: Floats
    ids: Ints  # (sources, num_beams, most)
    lengths: Ints
    stopped: NDArray[np.bool_]

    @classmethod
    def none(cls, sources: int, beams: int, most: int) -> Finished:
        shape = (sources, beams)
        return cls(
            np.full(shape, -np.inf, np.float32),
            np.zeros((*shape, most), np.int64),
            np.zeros(shape, np.int64),
            np.zeros(shape, np.bool_),
        )

    def add(self, at: Ints, scores: Floats, ids: Ints, length: int, stopped: NDArray[np.bool_]) -> None:
        """Offer hypotheses (len(at), n) to the sources `at`; those that are none have score -inf."""
        beams = self.scores.shape[1]
        merged = np.concatenate((self.scores[at], scores), axis=1)
        order = np.argsort(-merged, axis=1, kind="stable")[:, :beams]
        self.scores[at] = np.take_along_axis(merged, order, 1)
        self.ids[at] = np.take_along_axis(np.concatenate((self.ids[at], ids), axis=1), order[:, :, None], 1)
        for mine, new in ((self.lengths, np.full_like(scores, length, np.int64)), (self.stopped, stopped)):
            mine[at] = np.take_along_axis(np.concatenate((mine[at], new), axis=1), order, 1)

    def keep(self, at: NDArray[np.bool_]) -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name)[at])

    def hypotheses(self, source: int, count: int) -> list[Hypothesis]:
        found = []
        for beam in range(count):
            if self.scores[source, beam] == -np.inf:
                break
            stopped = bool(self.stopped[source, beam])
            ids = self.ids[source, beam, : self.lengths[source, beam] - stopped]
            score = float(self.scores[source, beam])
            found.append(Hypothesis(tuple(ids.tolist()), score, "stop" if stopped else "length"))
        return found


class Search:
    """The running hypotheses of the sources that are still searched, and what each source has finished."""

    def __init__(self, sources: int, limits: Limits, options: GenerationConfig) -> None:
        self.limits, self.options, self.beams = limits, options, options.num_beams
        self.results: list[list[Hypothesis]] = [[] for _ in range(sources)]
        self.active = np.arange(sources)
        self.step = 0
        # The first step has one row a source, since all its beams would be the same.
        self.tokens = np.full((sources, 1), limits.start, np.int64)  # (sources, beams)
        self.scores = np.zeros((sources, 1), np.float32)
        self.ids = np.zeros((sources, self.beams, limits.most), np.int64)
        self.finished = Finished.none(sources, self.beams, limits.most)

    def advance(self, logits: Floats) -> tuple[Ints, Ints | None]:
        """Take a step's logits (rows, vocab_size); which rows to go on with, and which sources, None for all."""
        sources, beams = self.scores.shape
        log_probs = log_softmax(logits)
        if self.step < self.limits.least:
            log_probs[:, self.limits.end] = -np.inf
        vocab_size = log_probs.shape[1]
        totals = (log_probs.reshape(sources, beams, vocab_size) + self.scores[:, :, None]).reshape(sources, -1)
        chosen = best(totals, 2 * self.beams)  # (sources, candidates), best first
        scores = np.take_along_axis(totals, chosen, 1)
        parents, tokens = np.divmod(chosen, vocab_size)
        ends = tokens == self.limits.end
        self.step += 1
        last = self.step == self.limits.most
        self.finish(scores, parents, tokens, ends, last)
        if last:
            return self.retire(np.ones(sources, np.bool_), parents)
        onward = np.argsort(ends, axis=1, kind="stable")[:, : self.beams]
        self.scores, self.tokens, parents = (np.take_along_axis(a, onward, 1) for a in (scores, tokens, parents))
        past = slice(self.step - 1)
        self.ids[:, :, past] = np.take_along_axis(self.ids[:, :, past], parents[:, :, None], 1)
        self.ids[:, :, self.step - 1] = self.tokens
        return self.retire(self.done(), parents)

    def finish(self, scores: Floats, parents: Ints, tokens: Ints, ends: NDArray[np.bool_], last: bool) -> None:
        """Keep those of the best num_beams candidates that end here; at the limit, all of them do."""
        top = slice(self.beams)
        ending = ends[:, top] if not last else np.ones_like(ends[:, top])
        at = np.flatnonzero(ending.any(axis=1))
        if len(at) == 0:
            return
        parents, tokens = parents[at, top], tokens[at, top]
        ids = np.take_along_axis(self.ids[at], parents[:, :, None], 1)
        ids[:, :, self.step - 1] = tokens
        normalized = scores[at, top] / np.float32(self.step**self.options.length_penalty)
        self.finished.add(at, np.where(ending[at], normalized, -np.inf), ids, self.step, ends[at, top])

    def done(self) -> NDArray[np.bool_]:
        """Which sources have num_beams finished hypotheses that no running one can displace."""
        full = self.finished.scores[:, -1] > -np.inf
        if self.options.early_stopping is True or not full.any():
            return full
        penalty = self.options.length_penalty
        hopeful = self.options.early_stopping == "never" and penalty > 0
        length = self.limits.most if hopeful else self.step
        attainable = self.scores[:, 0] / np.float32(length**penalty)
        return full & (attainable <= self.finished.scores[:, -1])

    def retire(self, done: NDArray[np.bool_], parents: Ints) -> tuple[Ints, Ints | None]:
        """Take finished sources out; rows of the last step to go on with, and sources, None for all."""
        previous = np.arange(len(done))[:, None] * (1 if self.step == 1 else self.beams) + parents
        if not done.any():
            return previous.ravel(), None
        for source in np.flatnonzero(done):
            found = self.finished.hypotheses(source, self.options.num_return_sequences)
            self.results[self.active[source]] = found
        going = ~done
        self.finished.keep(going)
        self.active, self.tokens, self.scores, self.ids = (
            array[going] for array in (self.active, self.tokens, self.scores, self.ids)
        )
        return previous[going].ravel(), np.flatnonzero(going)
