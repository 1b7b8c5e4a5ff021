"""Texts that end a text: a row is done as soon as one of them stands in what its tokens spell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.backends import Ints
from edgeformer.runtime.prompts import Prompt

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_BYTES, MORE = 4, 8  # tokens that a character may take, and tokens before: a decoder may cut a text's beginning


class Stops:
    """What each row's last tokens spell, as transformers' `stop_strings` look at it.

    A text stops it that the newest token completes: it may begin in the prompt, and the token may go on behind it.
    Special tokens are spelled as well.

    Args:
        strings: the texts, none empty.
        tokenizer: of the tokens.
        prompt: what each row began with.
        copies: rows that each row of the prompt became.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Tokenizer, prompt: Prompt, copies: int = 1) -> None:
        self.strings, self.tokenizer = strings, tokenizer
        self.window = MOST_BYTES * max(map(len, strings)) + MORE
        rows = [ids[:length].tolist() for ids, length in zip(prompt.ids, prompt.lengths, strict=True)]
        self.last: list[list[int]] = [row[-self.window :] for row in rows for _ in range(copies)]
        self.stopped: set[int] = set()

    def by(self, rows: Ints, tokens: Ints) -> NDArray[np.bool_]:
        """Whether these new tokens of these rows complete one of the texts; `stopped` keeps the rows."""
        found = np.array(
            [self.adds(row, token) for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)], bool
        )
        self.stopped.update(rows[found].tolist())
        return found

    def adds(self, row: int, token: int) -> bool:
        last = self.last[row]
        last.append(token)
        del last[: -self.window]
        before, after = self.spelled(last[:-1]), self.spelled(last)
        return any(
            string in after and occurrences(after, string) > occurrences(before, string) for string in self.strings
        )

    def spelled(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))


def occurrences(text: str, string: str) -> int:
    """How often it stands in the text, also over itself."""
    return sum(text.startswith(string, at) for at in range(len(text) - len(string) + 1))
