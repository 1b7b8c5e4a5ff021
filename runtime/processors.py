"""What options forbid or prefer: changes of logits before a token is chosen, as Hugging Face's processors make them.

A processor changes logits (rows, vocab_size) in place: those of greedy search and sampling, or in a beam search
log-probabilities. It knows no model and no backend. What it takes out becomes -inf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.probabilities import log_sum_exp
from edgeformer.runtime.prompts import History, Limits

HOLD_TOKENS = (
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id",
    "eos_token_id",
)  # fmt: skip


class Processor(Protocol):
    """A change of logits."""

    def applies(self, history: History) -> bool:
        """Whether this step's logits would be changed at all: where none is, nothing needs to see them."""

    def __call__(self, logits: Floats, history: History) -> None:
        """Change logits (rows, vocab_size) in place."""


@dataclasses.dataclass(frozen=True, slots=True)
class RepetitionPenalty:
    """Makes tokens that there are already less likely (CTRL, https://arxiv.org/abs/1909.05858)."""

    penalty: float

    def applies(self, history: History) -> bool:
        return True

    def __call__(self, logits: Floats, history: History) -> None:
        ids = history.ids  # a row's padding is its first token, so that it adds none
        values = np.take_along_axis(logits, ids, 1)
        penalty = np.float32(self.penalty)
        np.put_along_axis(logits, ids, np.where(values < 0, values * penalty, values / penalty), 1)


@dataclasses.dataclass(frozen=True, slots=True)
class NoRepeatedRuns:
    """Takes out tokens that would make a run of `size` tokens come a second time."""

    size: int

    def applies(self, history: History) -> bool:
        return bool(history.ids.shape[1] >= self.size)

    def __call__(self, logits: Floats, history: History) -> None:
        ids = history.ids
        runs = ids.shape[1] - self.size + 1
        same = np.arange(runs) >= history.begins[:, None]  # (rows, runs): begins as the last size - 1 tokens are
        for at in range(self.size - 1):
            same &= ids[:, at : at + runs] == ids[:, runs + at, None]
        rows, run = np.nonzero(same)
        logits[rows, ids[rows, run + self.size - 1]] = -np.inf


@dataclasses.dataclass(frozen=True, slots=True)
class BadWords:
    """Takes out the last token of each forbidden run whose other tokens are there.

    Attributes:
        prefixes: int64 (runs, length), of runs of one length, without their last tokens.
        lasts: int64 (runs,).
    """

    prefixes: Ints
    lasts: Ints

    def applies(self, history: History) -> bool:
        return bool(history.ids.shape[1] >= self.prefixes.shape[1])

    def __call__(self, logits: Floats, history: History) -> None:
        length = self.prefixes.shape[1]
        ids = history.ids
        ending = ids[:, None, ids.shape[1] - length :]  # (rows, 1, length)
        there = (ending == self.prefixes).all(-1) & (history.lengths >= length)[:, None]
        rows, runs = np.nonzero(there)
        logits[rows, self.lasts[runs]] = -np.inf


@dataclasses.dataclass(frozen=True, slots=True)
class NoEarlyEnd:
    """Takes out the end tokens until a text has its least length."""

    ends: Ints

    def applies(self, history: History) -> bool:
        return history.step < int(history.least.max())

    def __call__(self, logits: Floats, history: History) -> None:
        logits[np.ix_(history.step < history.least, self.ends)] = -np.inf


@dataclasses.dataclass(frozen=True, slots=True)
class ForcedSecond:
    """Leaves only one token to follow the first of all, which starts a text after an encoder."""

    token: int

    def applies(self, history: History) -> bool:
        return history.step == 0 and bool((history.lengths == 1).any())

    def __call__(self, logits: Floats, history: History) -> None:
        leave_only(logits, history.lengths == 1, [self.token])


@dataclasses.dataclass(frozen=True, slots=True)
class ForcedLast:
    """Leaves only these tokens at the last step that a row has."""

    tokens: Sequence[int]

    def applies(self, history: History) -> bool:
        return bool((history.most == history.step + 1).any())

    def __call__(self, logits: Floats, history: History) -> None:
        leave_only(logits, history.most == history.step + 1, self.tokens)


@dataclasses.dataclass(frozen=True, slots=True)
class Suppressed:
    """Takes out tokens."""

    tokens: Ints

    def applies(self, history: History) -> bool:
        return True

    def __call__(self, logits: Floats, history: History) -> None:
        logits[:, self.tokens] = -np.inf


@dataclasses.dataclass(frozen=True, slots=True)
class SuppressedFirst:
    """Takes out tokens where a text begins: after the prompt, or after the forced token that follows the first one."""

    tokens: Ints
    after_forced: bool

    def first(self, history: History) -> NDArray[np.bool_]:
        """Rows whose text begins here."""
        forced = (history.prompt_len - history.begins == 1) & self.after_forced
        first: NDArray[np.bool_] = forced == history.step
        return first

    def applies(self, history: History) -> bool:
        return history.step < 2 and bool(self.first(history).any())

    def __call__(self, logits: Floats, history: History) -> None:
        logits[np.ix_(self.first(history), self.tokens)] = -np.inf


class Renormalized:
    """Makes probabilities sum to 1 again."""

    def applies(self, history: History) -> bool:
        return True

    def __call__(self, logits: Floats, history: History) -> None:
        logits -= log_sum_exp(logits)


def leave_only(logits: Floats, rows: NDArray[np.bool_], tokens: Sequence[int]) -> None:
    """In some rows nothing but these tokens, each as likely as the others."""
    logits[rows] = -np.inf
    logits[np.ix_(rows, np.asarray(tokens))] = 0


def processors_of(options: GenerationConfig, limits: Limits, vocab_size: int) -> tuple[Processor, ...]:
    """What options and limits ask of each step, in the order in which Hugging Face applies it; often nothing.

    Raises:
        OptionError: ids outside the vocabulary, by the options that hold them.
    """
    require_known_tokens(options, vocab_size)
    return tuple(wanted(options, limits))


def wanted(options: GenerationConfig, limits: Limits) -> Iterator[Processor]:
    if options.repetition_penalty != 1:
        yield RepetitionPenalty(options.repetition_penalty)
    if options.no_repeat_ngram_size:
        yield NoRepeatedRuns(options.no_repeat_ngram_size)
    yield from bad_words([tuple(word) for word in options.bad_words_ids], limits.ends)
    if limits.ends and (limits.least or limits.least_length):
        yield NoEarlyEnd(np.array(limits.ends))
    if options.forced_bos_token_id is not None:
        yield ForcedSecond(options.forced_bos_token_id)
    if options.forced_eos_token_id is not None:
        yield ForcedLast(cast("Sequence[int]", options.forced_eos_token_id))
    if options.suppress_tokens:
        yield Suppressed(np.array(options.suppress_tokens))
    if options.begin_suppress_tokens:
        yield SuppressedFirst(np.array(options.begin_suppress_tokens), options.forced_bos_token_id is not None)
    if options.renormalize_logits and options.num_beams > 1:
        yield Renormalized()


def bad_words(words: Sequence[tuple[int, ...]], ends: Sequence[int]) -> Iterator[Processor]:
    """Processors for runs of each length. An end token alone is no bad word, as Hugging Face has it."""
    words = [word for word in words if len(word) > 1 or word[0] not in ends]
    for length in sorted({len(word) for word in words}):
        same = np.array([word for word in words if len(word) == length], np.int64)
        yield BadWords(same[:, :-1], same[:, -1]) if length > 1 else Suppressed(same[:, 0])


def require_known_tokens(options: GenerationConfig, vocab_size: int) -> None:
    problems = []
    for name in HOLD_TOKENS:
        if unknown := sorted({token for token in flat(getattr(options, name)) if token >= vocab_size}):
            problems.append(f"{name} holds {', '.join(map(str, unknown))}, outside the vocabulary of {vocab_size}")
    if problems:
        raise OptionError("; ".join(problems))


def flat(tokens: Any) -> Iterator[int]:
    """Ids out of None, one, or sequences of them."""
    if isinstance(tokens, int):
        yield tokens
    elif tokens is not None:
        for part in tokens:
            yield from flat(part)
