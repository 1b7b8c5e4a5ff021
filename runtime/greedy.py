"""One text for each row: the likeliest token at each step, or one that is drawn. Rows that end leave the batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import numpy as np

from edgeformer.runtime.backends import ChoosingRows, Floats, Ints, Rows
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.native.choosing import Choosing
from edgeformer.runtime.probabilities import SumExp
from edgeformer.runtime.processors import Processor
from edgeformer.runtime.prompts import History, Limits, Prompt
from edgeformer.runtime.results import FinishReason, Hypothesis
from edgeformer.runtime.sampling import Sampler
from edgeformer.runtime.stopping import Stops

# Rows that ended are computed along until they are this share of the batch: leaving costs a copy of the caches.
ENDED_SHARE = 0.1
NO_LOGITS = np.empty((0, 0), np.float32)


def greedy_steps(
    rows: Rows,
    prompt: Prompt,
    limits: Limits,
    processors: Sequence[Processor] = (),
    sampler: Sampler | None = None,
    on_step: Callable[[], None] = lambda: None,
    stops: Stops | None = None,
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """One item a step: which rows are still going, their new tokens, and the tokens' log-probabilities.

    The log-probabilities are the model's, before processors and the sampler's options change them. Rows that can
    choose the likeliest token themselves do so at every step that nothing changes.

    Args:
        rows: fresh rows, as many as the prompt has; where the sampler makes copies, each becomes as many.
        processors: of `processors_of`, which `limits.least` is among.
        sampler: draws the tokens; the likeliest are taken where it is None.
        on_step: called after every step.
        stops: ends rows by what their tokens spell.

    Raises:
        OptionError: a prompt leaves no room for a text, or the processors no token to take.
    """
    chooser = cast("ChoosingRows", rows) if hasattr(rows, "step_next") and sampler is None else None
    chosen = Choice(processors, sampler, prompt, limits)
    most = limits.most_new(prompt)
    inputs, lengths = prompt.ids, prompt.lengths if prompt.is_ragged else None
    copies = sampler.copies if sampler else 1
    going = np.arange(len(prompt.ids) * copies)  # (still going,) of all rows
    at = going  # where the session computes them
    shortest = limits.most_held(prompt) + 1 - prompt.ids.shape[1]  # steps that every row may take: the longest's
    for step in itertools.count(1):
        if chooser is not None and lengths is None and not chosen.needs_logits():
            tokens, log_probs = chooser.step_next(inputs)
        else:
            logits = rows.step(inputs, lengths)[:, 0]
            if step == 1 and copies > 1:
                each = np.repeat(np.arange(len(logits)), copies)
                rows.select(each, each)
                logits, most = logits[each], most[each]
                chosen.select_history(each)
            tokens, log_probs = chosen.of(logits)
        lengths = None
        new, new_log_probs = tokens, log_probs
        if len(at) < len(tokens):
            new, new_log_probs = tokens[at], log_probs[at]
        require_choice(processors, new_log_probs)
        on_step()
        stopped = stops.by(going, new) if stops is not None else None
        yield going, new, new_log_probs
        if step >= shortest or limits.has_end(new) or (stopped is not None and stopped.any()):
            left = ~limits.is_end(new) & (most[going] > step)
            if stopped is not None:
                left &= ~stopped
            going, at = going[left], at[left]
            if len(going) == 0:
                return
            shortest = most[going].min()
            if len(going) <= len(tokens) * (1 - ENDED_SHARE):
                rows.select(at, at)
                chosen.select(at)
                tokens, at = tokens[at], np.arange(len(at))
        chosen.append(tokens)
        inputs = tokens[:, None]


def require_choice(processors: Sequence[Processor], log_probs: Floats) -> None:
    """Refuse tokens that were taken for lack of any other.

    Raises:
        OptionError: processors left a row none.
    """
    if processors and (log_probs == -np.inf).any():
        raise OptionError("the options leave a row no token to take: bad words, suppressed or repeated tokens")


class Choice:
    """Takes a token for each row from its logits.

    Attributes:
        history: of the rows, where there are processors to read it.
    """

    def __init__(
        self, processors: Sequence[Processor], sampler: Sampler | None, prompt: Prompt, limits: Limits
    ) -> None:
        self.processors, self.sampler = processors, sampler
        self.history = History(prompt, limits) if processors else None
        self.unchanged = NO_LOGITS
        self.sum_exp = SumExp()
        self.native = Choosing.here()
        self.each = np.arange(len(prompt.ids))

    def active(self) -> list[Processor]:
        history = self.history
        return [process for process in self.processors if process.applies(history)] if history is not None else []

    def needs_logits(self) -> bool:
        """Whether the likeliest token may be another one than the one to take."""
        return bool(self.active())

    def of(self, logits: Floats) -> tuple[Ints, Floats]:
        """The token of each row, and how likely the model holds it to be, -inf where nothing was left to take.

        Args:
            logits: (rows, vocab_size), which processors change.
        """
        plain = self.history is None and self.sampler is None
        if plain and self.native is not None:
            return self.native.likeliest(logits)
        each = self.each
        if len(each) != len(logits):
            each = self.each = np.arange(len(logits))
        if plain:
            tokens = logits.argmax(-1)
            largest = logits[each, tokens]
            return tokens, largest - self.sum_exp.log(logits, largest)
        normalizer = self.sum_exp.log(logits, logits.max(-1))
        unchanged = logits
        if self.history is not None and (active := self.active()):
            unchanged = self.copy_of(logits)
            for process in active:
                process(logits, self.history)
        tokens = self.sampler.draw(logits) if self.sampler else logits.argmax(-1)
        log_probs = unchanged[each, tokens] - normalizer
        if unchanged is not logits:
            log_probs[logits[each, tokens] == -np.inf] = -np.inf
        return tokens, log_probs

    def copy_of(self, logits: Floats) -> Floats:
        if len(self.unchanged) < len(logits):
            self.unchanged = np.empty_like(logits)
        kept = self.unchanged[: len(logits)]
        np.copyto(kept, logits)
        return kept

    def append(self, tokens: Ints) -> None:
        if self.history is not None:
            self.history.append(tokens)

    def select(self, rows: Ints) -> None:
        self.select_history(rows)
        if self.sampler:
            self.sampler.select(rows)

    def select_history(self, rows: Ints) -> None:
        if self.history is not None:
            self.history.select(rows)


def collect(
    steps: Iterable[tuple[Ints, Ints, Floats]], texts: int, ends: Sequence[int], stops: Stops | None = None
) -> list[Hypothesis]:
    """Texts of the tokens that steps give.

    Args:
        steps: as `greedy_steps` gives them.
        texts: how many there are.
        ends: tokens that end one.
        stops: what has ended others, once the steps are done.
    """
    ids: list[list[int]] = [[] for _ in range(texts)]
    scores, reasons = [0.0] * texts, list[FinishReason](["length"] * texts)
    for going, tokens, log_probs in steps:
        for row, token, log_prob in zip(going.tolist(), tokens.tolist(), log_probs.tolist(), strict=True):
            scores[row] += log_prob
            if token in ends:
                reasons[row] = "stop"
            else:
                ids[row].append(token)
    for row in stops.stopped if stops is not None else ():
        reasons[row] = "stop"
    return [Hypothesis(tuple(i), s, r) for i, s, r in zip(ids, scores, reasons, strict=True)]
