"""Greedy search that guesses: what followed the same tokens before is tried again, several tokens in one step.

Prompt lookup decoding (A. Saxena, 2023, https://github.com/apoorvumang/prompt-lookup-decoding): where the last tokens
stood in the prompt or in the text before, those that followed them there go into the step that computes the next token,
and as many of them are kept as the model itself takes.

A text stays what it is without. Sums over several tokens differ in their last bits from those over one, and quantized
activations make more of it. So what a step of several tokens says counts only where the likeliest token leads the next
one by more than that. Where it does not, all tokens since the last that were computed one by one are computed so again,
and what is the likeliest then is taken: what plain greedy search takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from edgeformer.runtime.backends import Floats, Ints, RewindingRows
from edgeformer.runtime.greedy import Choice, require_choice
from edgeformer.runtime.processors import Processor, RepetitionPenalty
from edgeformer.runtime.prompts import Limits, Prompt

RUNS = (3, 2)  # tokens that are looked for: the longer run first


@dataclasses.dataclass(frozen=True, slots=True)
class Lookup:
    """How drafts are made and judged.

    Attributes:
        most: tokens of a draft.
        noise: how much a logit may depend on the number of tokens in a step, as a share of the distance between the
            largest and the least.
    """

    most: int
    noise: float


class Drafts:
    """What followed the same tokens before."""

    def __init__(self, tokens: Sequence[int], most: int) -> None:
        self.tokens = list(tokens)
        self.most = self.length = most
        self.after: dict[tuple[int, ...], int] = {}  # where what follows a run stands, the last time that it came
        for end in range(1, len(self.tokens)):
            self.note(end)

    def note(self, end: int) -> None:
        """Remember the runs that end before a place."""
        for size in RUNS:
            if size <= end:
                self.after[tuple(self.tokens[end - size : end])] = end

    def append(self, token: int) -> None:
        self.note(len(self.tokens))
        self.tokens.append(token)

    def next(self, most: int) -> list[int]:
        """Tokens that may follow, at most so many; often none."""
        for size in RUNS:
            at = self.after.get(tuple(self.tokens[-size:]))
            if at is not None:
                return self.tokens[at : at + min(most, self.length)]
        return []

    def judged(self, kept: int) -> None:
        """Draft as many as before where all were kept, and about as many as were kept where they were not."""
        self.length = min(self.most, 2 * kept + 1)


class Row:
    """A row, and which of its tokens were computed one by one.

    Attributes:
        tokens: of prompt and text; between steps the row holds all but the last.
        exact: how many of them the row holds as plain greedy search would.
        repeated: how many steps were made again.
    """

    def __init__(self, rows: RewindingRows, prompt: Prompt, on_step: Callable[[], None]) -> None:
        self.rows, self.on_step = rows, on_step
        self.tokens: list[int] = prompt.ids[0].tolist()
        self.exact = self.repeated = 0

    def begin(self) -> Floats:
        """The logits that follow the prompt, (1, 1, vocab_size)."""
        self.exact = len(self.tokens)
        return self.run(self.tokens)

    def step(self, draft: Sequence[int]) -> Floats:
        """The logits that follow the last token and each of a draft, (1, 1 + len(draft), vocab_size)."""
        if not draft and self.exact == len(self.tokens) - 1:
            self.exact += 1
        return self.run([self.tokens[-1], *draft], all_of_them=True)

    @property
    def doubtful(self) -> bool:
        """Whether the last step's logits may be others than plain greedy search would see."""
        return self.exact < len(self.tokens)

    def again(self) -> Floats:
        """The logits that follow the last token, (1, 1, vocab_size), as plain greedy search sees them."""
        self.hold(self.exact)
        logits = np.empty(0, np.float32)
        for token in self.tokens[self.exact :]:
            logits = self.run([token])
        self.repeated += len(self.tokens) - self.exact
        self.exact = len(self.tokens)
        return logits

    def hold(self, count: int) -> None:
        """Forget what the row holds beyond so many tokens."""
        self.rows.rewind(np.array([count], np.int64))

    def run(self, ids: Sequence[int], *, all_of_them: bool = False) -> Floats:
        at = np.arange(len(ids))[None] if all_of_them and len(ids) > 1 else None
        logits = self.rows.step(np.array([ids], np.int64), None, at)
        self.on_step()
        return logits


def lookup_steps(
    rows: RewindingRows,
    prompt: Prompt,
    limits: Limits,
    lookup: Lookup,
    processors: Sequence[Processor] = (),
    on_step: Callable[[], None] = lambda: None,
    source: Sequence[int] = (),
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """What `greedy_steps` gives for one row, in fewer steps where a text repeats its prompt or itself.

    Args:
        rows: a fresh row.
        prompt: of one row.
        processors: of `processors_of`, which `limits.least` is among.
        on_step: called after every step, which may give several tokens, or none.
        source: tokens to look in beside the prompt's, such as an encoder's in the vocabulary of the text.

    Raises:
        OptionError: as `greedy_steps`.
    """
    (most,) = limits.most_new(prompt).tolist()
    first = np.zeros(1, np.int64)
    choice, noise = Choice(processors, None, prompt, limits), noise_after(processors, lookup.noise)
    row, drafts = Row(rows, prompt, on_step), Drafts([*source, *prompt.ids[0].tolist()], lookup.most)
    logits, draft, count, gained = row.begin(), list[int](), 0, 0
    while True:
        for place in range(len(draft) + 1):
            given = logits[:, place]  # (1, vocab_size)
            needed = 2 * noise * float(given.max() - given.min()) if row.doubtful else 0.0
            tokens, log_probs = choice.of(given)
            again = row.doubtful and lead(given) <= needed
            if again:
                tokens, log_probs = choice.of(row.again()[:, 0])
            require_choice(processors, log_probs)
            yield first, tokens, log_probs
            (token,) = tokens.tolist()
            count += 1
            if count == most or token in limits.ends:
                return
            choice.append(tokens)
            row.tokens.append(token)
            drafts.append(token)
            if again:
                break
            if place == len(draft) or token != draft[place]:
                if draft:
                    row.hold(len(row.tokens) - 1)
                break
            gained += 1
        if draft:
            drafts.judged(place)
        draft = drafts.next(most - count - 1) if row.repeated <= gained else []
        logits = row.step(draft)


def noise_after(processors: Sequence[Processor], noise: float) -> float:
    """What noise of logits may become: a penalty multiplies some of them."""
    penalties = [process.penalty for process in processors if isinstance(process, RepetitionPenalty)]
    return noise * max([1.0, *penalties, *(1 / penalty for penalty in penalties)])


def lead(logits: Floats) -> float:
    """How far the largest logit is above the next one, of (1, vocab_size), which loses the largest."""
    best = logits.argmax()
    largest = logits[0, best]
    logits[0, best] = -np.inf
    return float(largest - logits.max())
