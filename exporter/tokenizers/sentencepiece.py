"""A SentencePiece model as a tokenizer of the `tokenizers` library, giving the ids that SentencePiece gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.decoders import Decoder
from tokenizers.normalizers import Normalizer

from edgeformer.exporter.tokenizers.sentencepiece_model import (
    BPE,
    BYTE,
    NORMAL,
    SPACE,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    SentencePieceModel,
)

# A name that no text can spell, since spaces have become SPACE before the model sees it.
HIDDEN = " "

PARTED = "\ufff1"  # never assigned, and no part of a grapheme
UNICODE_RULES = ("nfkc", "nfkc_cf", "nmt_nfkc", "nmt_nfkc_cf")  # SentencePiece's own sets of rules


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """Which token has which id.

    Attributes:
        tokens: by their ids. Those that are pieces of the model are found in texts.
        unknown: the token of what has no piece.
        special: tokens that are matched in the text itself, before any piece.
        prefixed: which parts of a text begin with a space of their own where special tokens part it: `always` all,
            `first` the text's beginning alone.
    """

    tokens: Sequence[str]
    unknown: str
    special: frozenset[str]
    prefixed: str = "always"


def build_tokenizer(model: SentencePieceModel, vocabulary: Vocabulary) -> Tokenizer:
    """A tokenizer that normalizes and segments as the model, with the ids of the vocabulary."""
    tokenizer = Tokenizer(bpe(model, vocabulary) if model.kind == BPE else unigram(model, vocabulary))
    defined = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED]
    prefixed = "first" if defined else vocabulary.prefixed  # symbols of the user's own part words, not texts
    prefixed = prefixed if model.add_dummy_prefix else "never"
    steps = normalizer_steps(model, prefixed)
    if steps:
        tokenizer.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    whole_words = not any(SPACE in piece.text[1:] for piece in model.pieces if piece.kind == NORMAL)
    spaces = pre_tokenizers.Metaspace(prepend_scheme=prefixed, split=whole_words)
    tokenizer.pre_tokenizer = spaces
    if model.kind == UNIGRAM and model.byte_fallback:  # bytes' names are no pieces, should a text spell one
        no_byte = pre_tokenizers.Split(Regex("<(?=0x[0-9A-F]{2}>)"), "merged_with_previous")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([spaces, no_byte])
    tokenizer.decoder = decoder(model)
    tokenizer.add_tokens([AddedToken(text, normalized=True, special=False) for text in defined])
    return tokenizer


def normalizer_steps(model: SentencePieceModel, prefixed: str) -> list[Normalizer]:
    steps = character_steps(model)
    own_spaces = SPACE  # signs at the beginning of a text that Metaspace would take for the space in front
    if model.remove_extra_whitespaces:
        cut = rf"\A +\z|[ {SPACE}]+\z" if prefixed == "first" else rf"\A +|[ {SPACE}]+\z"
        steps += [normalizers.Replace(Regex(cut), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    elif prefixed == "always":
        return [*steps, normalizers.Replace(" ", SPACE), normalizers.Prepend(SPACE)]
    else:
        own_spaces += " "
    if prefixed != "never":
        steps.append(normalizers.Replace(Regex(rf"\A(?=[{own_spaces}])"), " "))
    return steps


def character_steps(model: SentencePieceModel) -> list[Normalizer]:
    """What the charsmap does to characters.

    `Precompiled` looks at graphemes, and loses marks: it takes the first rule for a grapheme's beginning as the whole,
    and no rule of several characters in a grapheme of more than five bytes. So marks are composed before and after,
    where they compose, and parted from their letters between.
    """
    if not model.charsmap:
        return []
    charsmap: Normalizer = normalizers.Precompiled(model.charsmap)
    if model.rules not in UNICODE_RULES:
        return [charsmap]
    apart = normalizers.Replace(Regex(r"(?=[\p{M}\x{200C}\x{200D}])|(?<=\r)(?=\n)"), PARTED)
    return [normalizers.NFC(), apart, charsmap, normalizers.Replace(PARTED, ""), normalizers.NFC()]


def decoder(model: SentencePieceModel) -> Decoder:
    shown: list[Decoder] = [decoders.Replace(Regex(rf"\A{HIDDEN}"), "")]
    if not model.byte_fallback:
        return decoders.Sequence(
            [*shown, decoders.Metaspace(prepend_scheme="always" if model.add_dummy_prefix else "never")]
        )
    first = [decoders.Strip(" ", 1, 0)] if model.add_dummy_prefix else []
    return decoders.Sequence([*shown, decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *first])


def names(model: SentencePieceModel, vocabulary: Vocabulary) -> list[str]:
    """Tokens by their ids, hidden where no text may give them: control pieces and pieces of another model."""
    kinds = {piece.text: piece.kind for piece in model.pieces}
    found = {NORMAL, BYTE, USER_DEFINED, UNKNOWN}
    shown = {*vocabulary.special, vocabulary.unknown}
    return [token if token in shown or kinds.get(token) in found else HIDDEN + token for token in vocabulary.tokens]


def unigram(model: SentencePieceModel, vocabulary: Vocabulary) -> models.Unigram:
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind == NORMAL}
    scored = [(name, scores.get(name, 0.0)) for name in names(model, vocabulary)]
    return models.Unigram(scored, vocabulary.tokens.index(vocabulary.unknown), model.byte_fallback)


def bpe(model: SentencePieceModel, vocabulary: Vocabulary) -> models.BPE:
    """Pieces merge in the order of their scores, whichever two parts they come from."""
    ids = {name: i for i, name in enumerate(names(model, vocabulary))}
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind == NORMAL and piece.text in ids}
    merges = [
        (-scores[whole], ids[whole], whole[:cut], whole[cut:])
        for whole in scores
        for cut in range(1, len(whole))
        if whole[:cut] in scores and whole[cut:] in scores
    ]
    return models.BPE(
        vocab=ids,
        merges=[(left, right) for _, _, left, right in sorted(merges)],
        unk_token=vocabulary.unknown,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
    )
