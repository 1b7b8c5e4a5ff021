"""Beam search, with the meaning that Hugging Face gives it.

At each step the 2 * num_beams best continuations of a source are looked at. One that ends is a finished hypothesis if
it is among the best num_beams of them; the best num_beams that do not end go on. The best num_beams finished
hypotheses are kept, by log-probability / tokens ** length_penalty.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

import numpy as np

from edgeformer.runtime.backends import Floats, Ints, Rows
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.native.choosing import Choosing
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.probabilities import SumExp
from edgeformer.runtime.processors import Processor
from edgeformer.runtime.prompts import History, Limits, Prompt
from edgeformer.runtime.results import FinishReason, Hypothesis
from edgeformer.runtime.sampling import LOWEST, bound

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
        if not search.active:
            return search.results
        if rows_kept is not None:
            rows.select(rows_kept, sources_kept)
        logits = rows.step(search.tokens)[:, 0]


def best(values: Floats, count: int) -> list[tuple[float, int]]:
    """The `count` largest of some numbers (n,) with their indices, largest first.

    Where fewer are not -inf, others follow at -inf.
    """
    if (width := len(values)) <= FEW:
        count = min(count, width)
        indices = values.argpartition(width - count)[width - count :]
    else:  # a partition of all would move ten times as much as is looked at
        indices = np.flatnonzero(values >= max(bound(values[None], count)[0, 0], LOWEST))
    found = zip(values[indices].tolist(), indices.tolist(), strict=True)
    largest = sorted(found, key=itemgetter(0), reverse=True)[:count]
    return largest + [(-math.inf, 0)] * (count - len(largest))


class Beams:
    """The running hypotheses of one source, best first, and the best of those that it has finished.

    Attributes:
        source: which one.
        scores: log-probabilities of the running hypotheses.
        texts: tokens of each.
        parents: which hypothesis of the step before each goes on with.
        finished: at most num_beams, best first.
    """

    def __init__(self, source: int, most: int, ends: Sequence[int], options: GenerationConfig) -> None:
        self.source, self.most, self.ends, self.options = source, most, ends, options
        self.scores: list[float] = [0.0]
        self.texts: list[tuple[int, ...]] = [()]
        self.parents: list[int] = []
        self.finished: list[Hypothesis] = []

    def advance(self, candidates: Iterable[tuple[float, int]], vocab_size: int) -> None:
        """Take a step: what ends is finished where it is good enough, and the best of the others go on.

        Args:
            candidates: the best continuations, best first: scores, and parent * vocab_size + token. Enough of them do
                not end.
        """
        before, beams = self.texts, self.options.num_beams
        last = len(before[0]) + 1 == self.most
        self.scores, self.texts, self.parents = [], [], []
        for rank, (score, index) in enumerate(candidates):
            parent, token = divmod(index, vocab_size)
            possible = score > -math.inf
            ends = possible and token in self.ends
            if (ends or last) and possible and rank < beams:
                self.finish(before[parent] if ends else (*before[parent], token), score, "stop" if ends else "length")
            if not ends:
                self.scores.append(score)
                self.texts.append((*before[parent], token))
                self.parents.append(parent)
                if len(self.scores) == beams:
                    return

    def finish(self, text: tuple[int, ...], score: float, reason: FinishReason) -> None:
        """Offer a hypothesis; of two with the same score the earlier is the better."""
        score = self.reduced(score, len(text) + (reason == "stop"))
        if self.is_full():
            if score <= self.finished[-1].score:
                return
            self.finished.pop()
        bisect.insort_right(self.finished, Hypothesis(text, score, reason), key=lambda known: -known.score)

    def is_full(self) -> bool:
        return len(self.finished) == self.options.num_beams

    def reduced(self, score: float, tokens: int) -> float:
        """A score by the length of its text, in 32 bits."""
        return float(np.float32(score) / np.float32(tokens**self.options.length_penalty))

    def is_done(self) -> bool:
        """Whether no hypothesis may go on, or none could displace one of num_beams that are finished."""
        tokens, stopping = len(self.texts[0]), self.options.early_stopping
        if tokens == self.most:
            return True
        if not self.is_full():
            return False
        if stopping is True:
            return True
        hopeful = stopping == "never" and self.options.length_penalty > 0
        return self.reduced(self.scores[0], self.most if hopeful else tokens) <= self.finished[-1].score

    def result(self) -> list[Hypothesis]:
        """The num_return_sequences best.

        Raises:
            OptionError: there is none.
        """
        if not self.finished:
            raise OptionError("the options leave a search no hypothesis: bad words, suppressed or repeated tokens")
        return self.finished[: self.options.num_return_sequences]


class Search:
    """The sources that are still searched, and what the others have found.

    Attributes:
        active: hypotheses of the former; each source's follow those of the source before, in the session's rows.
        scores: (rows,), of the running hypotheses.
        tokens: (rows, 1), the last of each.
        history: of the rows, where there are processors to read it.
    """

    def __init__(
        self, prompt: Prompt, limits: Limits, options: GenerationConfig, processors: Sequence[Processor]
    ) -> None:
        most = limits.most_new(prompt).tolist()
        self.active = [Beams(source, tokens, limits.ends, options) for source, tokens in enumerate(most)]
        self.results: list[list[Hypothesis]] = [[] for _ in most]
        self.candidates = max(2, 1 + len(limits.ends)) * options.num_beams  # so that enough of them do not end
        # The first step has one row a source, since all its beams would be the same.
        self.scores: Floats = np.zeros(len(most), np.float32)
        self.tokens: Ints = prompt.ids
        self.processors = processors
        self.history = History(prompt, limits) if processors else None
        self.sum_exp = SumExp()
        self.native = Choosing.here()

    def continuations(self, logits: Floats) -> Iterable[Sequence[tuple[float, int]]]:
        """The best of each source, best first: log-probabilities, and hypothesis * vocab_size + token.

        Args:
            logits: (rows, vocab_size), which may be changed.
        """
        sources, history = len(self.active), self.history
        active = [process for process in self.processors if process.applies(history)] if history is not None else []
        if self.native is not None and not active:
            return self.native.continuations(logits, self.scores, sources, self.candidates)
        normalizer = self.sum_exp.log(logits, np.maximum.reduce(logits, axis=1))
        if history is None or not active:
            logits += (self.scores - normalizer)[:, None]
        else:
            logits -= normalizer[:, None]
            for process in active:
                process(logits, history)
            logits += self.scores[:, None]
        return (best(totals, self.candidates) for totals in logits.reshape(sources, -1))

    def advance(self, logits: Floats) -> tuple[Ints | None, Ints | None]:
        """Take a step's logits (rows, vocab_size); which rows to go on with, and which sources, None for all."""
        rows, vocab_size = logits.shape
        sources, of_each = len(self.active), rows // len(self.active)
        going: list[int] = []
        parents: list[int] = []
        scores: list[float] = []
        tokens: list[int] = []
        for place, (beams, candidates) in enumerate(zip(self.active, self.continuations(logits), strict=True)):
            beams.advance(candidates, vocab_size)
            if beams.is_done():
                self.results[beams.source] = beams.result()
                continue
            going.append(place)
            parents += [place * of_each + parent for parent in beams.parents]
            scores += beams.scores
            tokens += [text[-1] for text in beams.texts]
        self.scores, self.tokens = np.array(scores, np.float32), np.array(tokens, np.int64)[:, None]
        kept = None if parents == list(range(rows)) else np.array(parents, np.int64)
        self.remember(kept)
        if len(going) == sources:
            return kept, None
        self.active = [self.active[place] for place in going]
        return kept, np.array(going, np.int64)

    def remember(self, kept: Ints | None) -> None:
        """Put the tokens into the history, if there is one, of these rows, None for all."""
        if self.history is None:
            return
        if kept is not None:
            self.history.select(kept)
        self.history.append(self.tokens[:, 0])
