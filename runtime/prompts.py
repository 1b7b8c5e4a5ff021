"""What a search begins with, and when it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.backends import Ints


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
        lengths = np.array([len(row) for row in rows], np.int64)
        ids = np.full((len(rows), lengths.max()), pad, np.int64)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
        return cls(ids, lengths)

    @property
    def is_ragged(self) -> bool:
        """Whether some ids are padding."""
        return bool((self.lengths != self.ids.shape[1]).any())


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How long a text may be, and the tokens that end it.

    Attributes:
        ends: any of these ends a text.
        least: new tokens before an end token may be taken.
        most: new tokens, the end token among them.
        most_length: tokens of prompt and text together, None for no such limit. Each row is held to its own, and the
            shorter of both counts.
    """

    ends: tuple[int, ...]
    least: int
    most: int
    most_length: int | None = None

    def most_new(self, prompt: Prompt) -> Ints:
        """The most tokens of each row's text, (batch,)."""
        if self.most_length is None:
            return np.full(len(prompt.lengths), self.most, np.int64)
        return np.minimum(self.most, self.most_length - prompt.lengths)

    def is_end(self, tokens: Ints) -> NDArray[np.bool_]:
        """Which tokens end a text, in the shape of `tokens`."""
        ended: NDArray[np.bool_] = np.logical_or.reduce([tokens == end for end in self.ends]) if self.ends else NEVER
        return np.broadcast_to(ended, tokens.shape)


NEVER = np.zeros((), np.bool_)
