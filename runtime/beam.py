"""Beam search, with the meaning that Hugging Face gives it.

At each step the 2 * num_beams best continuations of a source are looked at. One that ends is a finished hypothesis if
it is among the best num_beams of them; the best num_beams that do not end go on. The best num_beams finished
hypotheses are kept, by log-probability / tokens ** length_penalty.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.backends import Floats, Ints, Rows
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.probabilities import SumExp
from edgeformer.runtime.processors import Processor
from edgeformer.runtime.prompts import History, Limits, Prompt
from edgeformer.runtime.results import Hypothesis
from edgeformer.runtime.sampling import above, bound

FEW = 1024  # numbers of a row, of which a partition finds the largest soonest


def beam_search(
    rows: Rows,
    prompt: Prompt,
    limits: Limits,
    options: GenerationConfig,
    processors: Sequence[Processor] = (),
    on_step: Callable[[], None] = lambda: None,
) -> list[list[Hypothesis]]:
    """The num_return_sequences best hypotheses of each source, best first.

    Args:
        rows: fresh rows, one for each source, as many as the prompt has.
        processors: of `processors_of`, which `limits.least` is among; they change log-probabilities here.
        on_step: called after every step.

    Raises:
        OptionError: a prompt leaves no room for a text, or the processors no hypothesis.
    """
    search = Search(prompt, limits, options, processors)
    logits = rows.step(prompt.ids, prompt.lengths if prompt.is_ragged else None)[:, 0]
    while True:
        on_step()
        rows_kept, sources_kept = search.advance(logits)
        if len(rows_kept) == 0:
            return search.results
        rows.select(rows_kept, sources_kept)
        logits = rows.step(search.tokens.reshape(-1, 1))[:, 0]


def best(values: Floats, count: int, each_row: Ints) -> tuple[Floats, Ints]:
    """The `count` largest of each row, largest first, and their indices; each_row is 0, 1, ... as a column.

    Where a row has fewer that are not -inf, others follow at -inf.
    """
    count = min(count, values.shape[1])
    if values.shape[1] <= FEW:
        indices = np.argpartition(values, values.shape[1] - count, axis=1)[:, -count:]
        found = values[each_row, indices]
    else:  # a partition of all would move ten times as much as is looked at
        indices, found = above(values, bound(values, count))
        if (missing := count - found.shape[1]) > 0:
            indices = np.pad(indices, ((0, 0), (0, missing)))
            found = np.pad(found, ((0, 0), (0, missing)), constant_values=-np.inf)
    order = np.argsort(-found, axis=1, kind="stable")[:, :count]
    return found[each_row, order], indices[each_row, order]


class Finished:
    """The best finished hypotheses of each source still searched.

    Attributes:
        worst: (sources,), the score that another one must exceed; -inf where there are not num_beams of them yet.
    """

    def __init__(self, sources: int, beams: int) -> None:
        self.beams = beams
        self.found: list[list[Hypothesis]] = [[] for _ in range(sources)]  # best first
        self.worst: Floats = np.full(sources, -np.inf, np.float32)

    def add(self, source: int, hypothesis: Hypothesis) -> None:
        """Offer one to a source; of two with the same score the earlier is the better."""
        found = self.found[source]
        bisect.insort_right(found, hypothesis, key=lambda known: -known.score)
        del found[self.beams :]
        if len(found) == self.beams:
            self.worst[source] = found[-1].score

    def keep(self, at: NDArray[np.bool_]) -> None:
        self.found = list(itertools.compress(self.found, at.tolist()))
        self.worst = self.worst[at]


class Search:
    """The running hypotheses of the sources that are still searched, and what each source has finished."""

    def __init__(
        self, prompt: Prompt, limits: Limits, options: GenerationConfig, processors: Sequence[Processor]
    ) -> None:
        sources = len(prompt.ids)
        self.limits, self.options, self.beams, self.processors = limits, options, options.num_beams, processors
        self.results: list[list[Hypothesis]] = [[] for _ in range(sources)]
        self.active: Ints = np.arange(sources)
        self.each_source: Ints = np.arange(sources)[:, None]
        self.most = limits.most_new(prompt)  # (sources,)
        self.candidates = max(2, 1 + len(limits.ends)) * self.beams  # so that enough of them do not end
        self.step = 0
        # The first step has one row a source, since all its beams would be the same.
        self.tokens: Ints = np.empty((sources, 1), np.int64)  # (sources, beams), of the last step
        self.scores: Floats = np.zeros((sources, 1), np.float32)
        self.history = History(prompt, limits)  # of the rows, each source's beams one after the other
        self.finished = Finished(sources, self.beams)
        self.sum_exp = SumExp()

    def totals(self, logits: Floats) -> Floats:
        """Log-probabilities of the running hypotheses with each token added, (rows, vocab_size), in place of logits."""
        normalizer = self.sum_exp.log(logits, logits.max(-1))[:, None]
        active = [process for process in self.processors if process.applies(self.history)]
        if not active:
            logits += self.scores.reshape(-1, 1) - normalizer
            return logits
        logits -= normalizer
        for process in active:
            process(logits, self.history)
        logits += self.scores.reshape(-1, 1)
        return logits

    def advance(self, logits: Floats) -> tuple[Ints, Ints | None]:
        """Take a step's logits (rows, vocab_size); which rows to go on with, and which sources, None for all."""
        sources, vocab_size = len(self.active), logits.shape[1]
        totals = self.totals(logits).reshape(sources, -1)  # (sources, beams * vocab_size)
        each = self.each_source[:sources]  # (sources, 1)
        scores, chosen = best(totals, self.candidates, each)  # (sources, candidates), best first
        parents = chosen // vocab_size
        tokens = chosen - parents * vocab_size
        ends = self.limits.is_end(tokens)
        any_end = ends.any()
        self.step += 1
        last = self.step >= self.most
        any_last = last.any()
        if any_end or any_last:
            self.finish(scores, parents, tokens, ends, last)
        if any_end:
            order = np.argsort(ends, axis=1, kind="stable")
            scores, tokens, parents = scores[each, order], tokens[each, order], parents[each, order]
        onward = slice(self.beams)
        self.scores, self.tokens, parents = scores[:, onward], tokens[:, onward], parents[:, onward]
        done = self.done()
        if any_last:
            done = last if done is None else done | last
        return self.retire(done, parents)

    def finish(
        self, scores: Floats, parents: Ints, tokens: Ints, ends: NDArray[np.bool_], last: NDArray[np.bool_]
    ) -> None:
        """Keep those of the best num_beams candidates that end here; where it is the last step, all of them do."""
        top = slice(self.beams)
        ending = (ends[:, top] | last[:, None]) & (scores[:, top] > -np.inf)
        rows, penalty = self.rows_of(parents), np.float32(self.step**self.options.length_penalty)
        for source, candidate in zip(*(at.tolist() for at in np.nonzero(ending)), strict=True):
            stopped = bool(ends[source, candidate])
            ids = self.history.text[rows[source, candidate]].tolist()
            if not stopped:
                ids.append(int(tokens[source, candidate]))
            score = float(scores[source, candidate] / penalty)
            self.finished.add(source, Hypothesis(tuple(ids), score, "stop" if stopped else "length"))

    def done(self) -> NDArray[np.bool_] | None:
        """Which sources have num_beams finished hypotheses that no running one can displace; None if none has."""
        worst = self.finished.worst
        full = worst > -np.inf
        if not full.any():
            return None
        if self.options.early_stopping is True:
            return full
        penalty = self.options.length_penalty
        hopeful = self.options.early_stopping == "never" and penalty > 0
        length = (self.most if hopeful else np.full_like(self.most, self.step)).astype(np.float32)
        done: NDArray[np.bool_] = full & (self.scores[:, 0] / length ** np.float32(penalty) <= worst)
        return done if done.any() else None

    def retire(self, done: NDArray[np.bool_] | None, parents: Ints) -> tuple[Ints, Ints | None]:
        """Take finished sources out; rows of the last step to go on with, and sources, None for all."""
        rows, sources = self.rows_of(parents), None
        if done is not None:
            rows, sources = rows[~done], np.flatnonzero(~done)
            self.take_out(done)
        kept = rows.ravel()
        self.history.select(kept)
        self.history.append(self.tokens.ravel())
        return kept, sources

    def rows_of(self, parents: Ints) -> Ints:
        """Rows of the last step that hypotheses come from, given which of a source's."""
        return self.each_source[: len(parents)] * (1 if self.step == 1 else self.beams) + parents

    def take_out(self, done: NDArray[np.bool_]) -> None:
        for source in np.flatnonzero(done).tolist():
            found = self.finished.found[source][: self.options.num_return_sequences]
            if not found:
                raise OptionError("the options leave a search no hypothesis: bad words, suppressed or repeated tokens")
            self.results[self.active[source]] = found
        going = ~done
        self.finished.keep(going)
        self.active, self.tokens, self.scores = self.active[going], self.tokens[going], self.scores[going]
        self.most = self.most[going]
