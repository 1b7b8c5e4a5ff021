"""Ids to text, whole or in pieces that come while the ids do and join to exactly the whole."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

INCOMPLETE = "\ufffd"  # shown for the first bytes of a character whose others are still to come
BYTE = re.compile(r"<0x..>\Z")

WINDOW, KEPT = 32, 4  # tokens that are decoded at once, and those of them that stay: a character has four bytes at most

# Spaces that a tokenizer puts before these and an English writer would not; in this order, as transformers does it.
CLEANED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
UNFINISHED = " 'nvr"  # characters that may go on to be one of them


@dataclasses.dataclass(frozen=True, slots=True)
class Settling:
    """When a decoder's text no longer changes by tokens that follow.

    Attributes:
        ever: whether it does before the last token is there.
        spells_bytes: whether a run of tokens like <0x0A> is read as a whole, at its end.
    """

    ever: bool
    spells_bytes: bool = False


class Detokenizer:
    """Turns ids into what transformers' `decode(ids, skip_special_tokens=True)` gives.

    Args:
        tokenizer: whose decoder and special tokens to use.
        config: content of the checkpoint's tokenizer_config.json, whose `clean_up_tokenization_spaces` counts, except
            for merges (BPE), which have spaces of their own.
    """

    def __init__(self, tokenizer: Tokenizer, config: Mapping[str, Any]) -> None:
        self.tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self.hidden = frozenset(token.content for token in added.values() if token.special)
        merges = type(tokenizer.model).__name__ == "BPE"
        forced = config.get("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", False)
        self.cleans = bool(config.get("clean_up_tokenization_spaces", False)) and (forced or not merges)
        decoder = tokenizer.decoder
        self.settling = settling(json.loads(decoder.__getstate__()) if decoder is not None else None)

    def decode(self, ids: Sequence[int]) -> str:
        text = self.raw(ids)
        return cleaned(text) if self.cleans else text

    def raw(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def pieces(self, ids: Iterable[int]) -> Iterator[str]:
        """Text that ids add, as early as it is settled; never empty."""
        pieces = self.raw_pieces(ids) if self.settling.ever else iter((self.raw(list(ids)),))
        return filter(None, cleaned_pieces(pieces) if self.cleans else pieces)

    def raw_pieces(self, ids: Iterable[int]) -> Iterator[str]:
        """Text that each id adds to that of the last few."""
        window: list[int] = []
        shown = ""
        for token_id in ids:
            token = self.tokenizer.id_to_token(token_id)
            if token is None or token in self.hidden:
                continue
            window.append(token_id)
            if self.settling.spells_bytes and BYTE.match(token):
                continue
            text = self.settled(window)
            yield text[len(shown) :]
            shown = text
            if len(window) > WINDOW:
                window, shown = self.shortened(window, shown)
        yield self.raw(window)[len(shown) :]

    def settled(self, window: Sequence[int]) -> str:
        """A text but for a character at its end that may lack bytes: one sign stands for those that are there."""
        return self.raw(window).removesuffix(INCOMPLETE)

    def shortened(self, window: list[int], shown: str) -> tuple[list[int], str]:
        """The last tokens, with text of their own: what a decoder does to a text's beginning, it has done there."""
        kept = KEPT
        while kept < len(window):
            if text := self.settled(window[-kept:]):
                return window[-kept:], text
            kept *= 2
        return window, shown


def settling(decoder: Mapping[str, Any] | None) -> Settling:
    """When the text of a decoder, as its JSON describes it, is settled.

    Most decoders turn token after token into text, and treat the first of them in a way of its own. Those that look at
    the joined text may change any of it, but for a cut at its beginning and the exchange of single characters; others
    look at the tokens around.
    """
    if decoder is None:
        return Settling(True)
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    joined = spells_bytes = False
    for step in steps:
        kind = step["type"]
        single = kind == "Replace" and len(step["pattern"].get("String", "")) == 1
        if kind in ("Fuse", "ByteLevel"):
            joined = True
        elif kind == "Strip":
            if joined and step["stop"]:
                return Settling(False)
        elif kind == "Replace":
            if joined and not single:
                return Settling(False)
        elif kind == "ByteFallback":
            spells_bytes = True
        elif kind not in ("Metaspace", "WordPiece"):
            return Settling(False)
    return Settling(True, spells_bytes)


def cleaned(text: str) -> str:
    for spaced in CLEANED:
        text = text.replace(spaced, spaced.strip())
    return text


def cleaned_pieces(pieces: Iterable[str]) -> Iterator[str]:
    """`cleaned` of joined pieces, as soon as no more can come of their ends."""
    held = ""
    for piece in pieces:
        held += piece
        if finished := held.rstrip(UNFINISHED):
            yield cleaned(finished)
            held = held[len(finished) :]
    yield cleaned(held)
