"""Text to ids and back, by the tokenizers that the checkpoint came with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from edgeformer.runtime.bundle import Bundle
from edgeformer.runtime.detokenizing import Detokenizer
from edgeformer.runtime.errors import BundleError, InputError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

SOURCE = "tokenizer.json"
TARGET = "target_tokenizer.json"
CONFIG = "tokenizer_config.json"


class Text:
    """The tokenizers of a bundle: one for sources, and one for targets where the checkpoint has another.

    A module of one's own may have none: then inputs are ids, and results have no text.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.source, sizes = load_tokenizer(bundle, SOURCE), bundle.manifest.sizes
        self.target = load_tokenizer(bundle, TARGET) if TARGET in bundle.manifest.files else self.source
        self.detokenizer = Detokenizer(self.target, bundle.read_json(CONFIG)) if self.target else None
        self.longest_source = sizes.max_source_positions or sizes.max_positions

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, with the special tokens that the tokenizer adds.

        Raises:
            InputError: a text is empty, too long, or holds what the vocabulary lacks.
        """
        return [self.encode_source(text) for text in texts]

    def encode_source(self, text: str) -> list[int]:
        if not text.strip():
            raise InputError(f"an input is empty ({text!r}): give at least one character")
        ids = encode(self.source, text, special=True)
        if len(ids) > self.longest_source:
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise InputError(
                f"input {shown!r} is {len(ids)} tokens long, the model has {self.longest_source} positions: shorten it"
            )
        return ids

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a language model's prompt, with the special tokens that the tokenizer adds; none for an empty text.

        Raises:
            InputError: it holds what the vocabulary lacks.
        """
        return encode(self.source, text, special=True)

    def encode_target(self, text: str) -> list[int]:
        """Ids of a target, without special tokens.

        Raises:
            InputError: it holds what the vocabulary lacks.
        """
        return encode(self.target, text, special=False)

    def encode_rendered(self, text: str) -> list[int]:
        """Ids of a prompt that has its special tokens already, such as a rendered chat: none are added.

        Raises:
            InputError: it holds what the vocabulary lacks.
        """
        return encode(self.source, text, special=False)

    def decode(self, ids: Sequence[int]) -> str:
        return self.detokenizer.decode(ids) if self.detokenizer else ""

    def pieces(self, ids: Iterable[int]) -> Iterator[str]:
        """Text that ids add, as they come; together the pieces are the text of all ids."""
        return self.detokenizer.pieces(ids) if self.detokenizer else iter(())


def load_tokenizer(bundle: Bundle, name: str) -> Tokenizer | None:
    """A tokenizer that neither pads nor cuts, whatever its file says; None where the bundle has none.

    Raises:
        BundleError: it is damaged.
    """
    from tokenizers import Tokenizer

    if name not in bundle.manifest.files:
        return None
    try:
        tokenizer = Tokenizer.from_file(str(bundle.folder / name))
    except Exception as error:  # tokenizers raises plain Exception
        raise BundleError(f"bundle {bundle.folder}", [f"{name} is not a tokenizer: {error}"]) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def encode(tokenizer: Tokenizer | None, text: str, *, special: bool) -> list[int]:
    return list(encoding_of(tokenizer, text, special=special).ids)


def encoding_of(tokenizer: Tokenizer | None, text: str, second: str | None = None, *, special: bool) -> Encoding:
    """The tokens of a text, or of two.

    Raises:
        InputError: there is no tokenizer, or a text holds what the vocabulary lacks.
    """
    if tokenizer is None:
        raise InputError(f"input {text!r:.80} is text, and the bundle has no tokenizer: give token ids")
    whole = text if second is None else f"{text} {second}"
    try:
        whole.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"input {whole!r} is not text: {error.reason} at {error.start}") from error
    try:
        return tokenizer.encode(text, second, add_special_tokens=special)
    except Exception as error:  # plain Exception as well: a token outside a vocabulary that has no unknown token
        raise InputError(unknown_parts(tokenizer, whole, error)) from error


def unknown_parts(tokenizer: Tokenizer, text: str, error: Exception) -> str:
    """Which parts of a text the vocabulary lacks, and what it has."""
    normalized = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    parts = [(normalized, (0, len(normalized)))]
    if tokenizer.pre_tokenizer:
        parts = tokenizer.pre_tokenizer.pre_tokenize_str(normalized)
    unknown = [f"{part!r} at {start}" for part, (start, _) in parts if tokenizer.token_to_id(part) is None]
    if not unknown:
        return f"input {text!r} cannot be tokenized: {error}"
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    known = sorted(set(tokenizer.get_vocab()) - special)
    listed = f"; known: {' '.join(known)}" if len(known) <= 100 else ""
    return f"input {text!r} holds what the model does not know: {', '.join(unknown)}{listed}"
