"""What a search begins with, when it ends, and what it has so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.backends import Ints
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.options import GenerationConfig

ROOM = 32  # columns that a history has beyond its prompt at first


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """The ids that each row is given first: a decoder's prompt, or after an encoder the token that starts a text.

    Attributes:
        ids: int64 (batch, q_len), right-padded with any id of the vocabulary.
        lengths: int64 (batch,), how many of them are real, at least one.
    """

    ids: Ints
    lengths: Ints

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], pad: int = 0) -> Prompt:
        """Rows of ids, at least one each."""
        lengths = [len(row) for row in rows]
        longest = max(lengths)
        ids = np.array([[*row, *[pad] * (longest - len(row))] for row in rows], np.int64)
        return cls(ids, np.array(lengths, np.int64))

    @property
    def is_ragged(self) -> bool:
        """Whether some ids are padding."""
        return bool(min(self.lengths.tolist()) < self.ids.shape[1])


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How long a text may be, and the tokens that end it.

    Attributes:
        ends: any of these ends a text.
        least: new tokens before an end token may be taken.
        most: new tokens, the end token among them.
        least_length, most_length: the same for tokens of prompt and text together, which differs from row to row where
            prompts are ragged; what is stricter counts. None for no such limit.
    """

    ends: tuple[int, ...]
    least: int
    most: int
    least_length: int = 0
    most_length: int | None = None

    @classmethod
    def of(cls, options: GenerationConfig, ends: Sequence[int], positions: int) -> Limits:
        """What options say of a model that was built for so many positions; a text's last token needs none."""
        return cls(
            ends=tuple(ends),
            least=options.min_new_tokens,
            most=options.max_new_tokens or positions,
            least_length=options.min_length,
            most_length=min(options.max_length or positions + 1, positions + 1),
        )

    def most_new(self, prompt: Prompt) -> Ints:
        """The most tokens of each row's text, (batch,), at least one.

        Raises:
            OptionError: a prompt leaves no room for one.
        """
        if self.most_length is None:
            return np.full(len(prompt.lengths), self.most, np.int64)
        if (longest := prompt.ids.shape[1]) >= self.most_length:
            raise OptionError(self.no_room(longest))
        most: Ints = np.minimum(self.most, self.most_length - prompt.lengths)
        return most

    def most_held(self, prompt: Prompt) -> int:
        """The most tokens that a row will hold; what a text ends with is not put into its cache.

        Raises:
            OptionError: a prompt leaves no room for a text.
        """
        longest: int = prompt.ids.shape[1]
        if self.most_length is None:
            return longest + self.most - 1
        if longest >= self.most_length:
            raise OptionError(self.no_room(longest))
        return min(longest + self.most, self.most_length) - 1

    def no_room(self, length: int) -> str:
        return (
            f"a prompt has {length} tokens, prompt and text may have {self.most_length} together: shorten it, or raise "
            "max_length where it is below what the model takes"
        )

    def least_new(self, prompt: Prompt) -> Ints:
        """How many tokens of each row's text come before an end token may be taken, (batch,)."""
        least: Ints = np.maximum(self.least, self.least_length - prompt.lengths)
        return least

    def has_end(self, tokens: Ints) -> bool:
        """Whether any of some tokens, (n,), ends a text."""
        return not set(self.ends).isdisjoint(tokens.tolist())

    def is_end(self, tokens: Ints) -> NDArray[np.bool_]:
        """Which of some tokens, (n,), end a text."""
        return np.array([token in self.ends for token in tokens.tolist()], np.bool_)


class History:
    """The tokens of rows that are decoded together: each row's prompt, and the text so far.

    Rows are aligned at their ends, so that the last token of each stands in the last column; what comes before a row's
    first is that token again.

    Attributes:
        step: how many tokens of text each row has.
        begins: (rows,), the column of each row's first token.
        least, most: (rows,), the limits of each row's text.
    """

    def __init__(self, prompt: Prompt, limits: Limits) -> None:
        batch, longest = prompt.ids.shape
        self.prompt_len, self.step = longest, 0
        self.begins = longest - prompt.lengths
        self.least, self.most = limits.least_new(prompt), limits.most_new(prompt)
        self.store = np.empty((batch, longest + ROOM), np.int64)
        columns = np.maximum(np.arange(longest) - self.begins[:, None], 0)
        self.store[:, :longest] = np.take_along_axis(prompt.ids, columns, 1)

    @property
    def ids(self) -> Ints:
        """All tokens, (rows, the longest prompt and the text)."""
        return self.store[:, : self.prompt_len + self.step]

    @property
    def text(self) -> Ints:
        """The text alone, (rows, step)."""
        return self.store[:, self.prompt_len : self.prompt_len + self.step]

    @property
    def lengths(self) -> Ints:
        """How many tokens each row has with its prompt, (rows,)."""
        lengths: Ints = self.prompt_len + self.step - self.begins
        return lengths

    def append(self, tokens: Ints) -> None:
        """A further token of each row, (rows,)."""
        at = self.prompt_len + self.step
        if at == self.store.shape[1]:
            self.store = np.concatenate((self.store, np.empty_like(self.store)), axis=1)
        self.store[:, at] = tokens
        self.step += 1

    def select(self, rows: Ints) -> None:
        """Go on with these rows, in this order; a row may be taken more than once."""
        self.store, self.begins = self.store[rows], self.begins[rows]
        self.least, self.most = self.least[rows], self.most[rows]
