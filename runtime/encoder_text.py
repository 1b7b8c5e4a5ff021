"""Texts and pairs of texts to ids, each knowing where its tokens stand."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeGuard, cast

from edgeformer.runtime.bundle import Bundle
from edgeformer.runtime.errors import BundleError, InputError
from edgeformer.runtime.text import SOURCE, encoding_of, load_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Pair = tuple[str, str]

MASKS = ("[MASK]", "<mask>")  # as they are written where no file of the checkpoint says
SAYING_SO = ("tokenizer_config.json", "special_tokens_map.json")


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedInput:
    """An input's tokens.

    Attributes:
        ids, type_ids: of each token.
        text: what it was made of; empty where it was given as ids, or is a pair.
        offsets: first character and the one behind the last of each token in `text`; none where that is empty.
        is_special: whether each token was added by the tokenizer; none where it was given as ids.
    """

    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    text: str = ""
    offsets: tuple[tuple[int, int], ...] = ()
    is_special: tuple[bool, ...] = ()


Input = str | Pair | Sequence[int] | EncodedInput


def is_pair(given: object) -> TypeGuard[Pair]:
    return isinstance(given, tuple) and len(given) == 2 and all(isinstance(text, str) for text in given)


class EncoderText:
    """The tokenizer of a bundle, where it has one."""

    def __init__(self, bundle: Bundle, longest: int, vocab_size: int) -> None:
        self.bundle, self.longest, self.vocab_size = bundle, longest, vocab_size

    @functools.cached_property
    def tokenizer(self) -> Tokenizer | None:
        return load_tokenizer(self.bundle, SOURCE)

    @functools.cached_property
    def cutting_tokenizer(self) -> Tokenizer | None:
        """As `tokenizer`, but it cuts what is too long, the longer one of a pair first."""
        tokenizer = load_tokenizer(self.bundle, SOURCE)
        if tokenizer is not None:
            tokenizer.enable_truncation(self.longest)
        return tokenizer

    @functools.cached_property
    def mask_id(self) -> int:
        """The token that stands for a word to be found.

        Raises:
            BundleError: there is none.
        """
        named = (self.bundle.read_json(name).get("mask_token") for name in SAYING_SO)
        written = [token.get("content") if isinstance(token, dict) else token for token in named]
        for token in (*written, *MASKS):
            if self.tokenizer is None or not isinstance(token, str):
                continue
            if (found := self.tokenizer.token_to_id(token)) is not None:
                return int(found)
        raise BundleError(f"bundle {self.bundle.folder}", ["it has no tokenizer with a mask token: none can be filled"])

    def encode(self, given: Input, *, truncate: bool = False) -> EncodedInput:
        """Ids of a text, of a pair, or of what was given as ids; what is encoded already stays as it is.

        Args:
            given: a text, a tuple of two texts, or token ids with their special tokens.
            truncate: whether what is too long is cut.

        Raises:
            InputError: it is empty, too long, or outside the vocabulary.
        """
        if isinstance(given, EncodedInput):
            return given
        if not isinstance(given, str) and not is_pair(given):
            return self.checked_ids(cast("Sequence[int]", given), truncate)
        first, second = (given, None) if isinstance(given, str) else given
        for text in (first,) if second is None else (first, second):
            if not text.strip():
                raise InputError(f"an input is empty ({text!r}): give at least one character")
        encoding = encoding_of(self.cutting_tokenizer if truncate else self.tokenizer, first, second, special=True)
        self.check_length(len(encoding.ids), first)
        return EncodedInput(
            ids=tuple(encoding.ids),
            type_ids=tuple(encoding.type_ids),
            text=first if second is None else "",
            offsets=tuple(encoding.offsets) if second is None else (),
            is_special=tuple(map(bool, encoding.special_tokens_mask)),
        )

    def encode_source(self, text: str) -> list[int]:
        """Ids of a text alone.

        Raises:
            InputError: as `encode`.
        """
        return list(self.encode(text).ids)

    def check_length(self, length: int, shown: object) -> None:
        if length > self.longest:
            what = shown if len(str(shown)) <= 40 else f"{str(shown)[:37]}..."
            raise InputError(
                f"input {what!r} is {length} tokens long, the model takes {self.longest}: shorten it, or let it be cut "
                "(truncate)"
            )
        if length == 0:
            raise InputError(f"input {shown!r} has no tokens: give at least one")

    def checked_ids(self, ids: Sequence[int], truncate: bool) -> EncodedInput:
        try:
            row = tuple(operator.index(token) for token in ids)
        except TypeError as error:
            raise InputError(f"an input is a text, a tuple of two texts, or token ids; got {ids!r:.80}") from error
        row = row[: self.longest] if truncate else row
        self.check_length(len(row), list(row))
        if unknown := [token for token in row if not 0 <= token < self.vocab_size]:
            raise InputError(f"token ids {unknown} are outside the vocabulary of {self.vocab_size}")
        return EncodedInput(row, (0,) * len(row))

    def written(self, token: int) -> str:
        """A token as it stands in a text; empty where there is no tokenizer."""
        return self.tokenizer.decode([token], skip_special_tokens=False).strip() if self.tokenizer else ""
