"""Ids become the text that transformers gives, and pieces of a stream join to it, whatever the decoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.decoders import Decoder

from edgeformer.runtime.detokenizing import Detokenizer, cleaned, cleaned_pieces

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = "a b n s t ve re don n't 's . , ! ' \u65e5".split()
CLEANING = {
    "clean_up_tokenization_spaces": True,
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True,
}


def with_added(model: models.Model, decoder: Decoder | None) -> Tokenizer:
    tokenizer = Tokenizer(model)
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.add_tokens([AddedToken("<s>", special=True), AddedToken(" <tool> ", special=False)])
    return tokenizer


def byte_level() -> Tokenizer:
    """Bytes, and tokens that end or begin inside of a character."""
    euro, smile = "\u00e2\u0124\u00ac", "\u00f0\u0141\u013a\u0122"
    tokens = [*BYTES, "\u0120a", euro[:2], euro[1:], f"{euro}a", smile, f"a{smile[:2]}"]
    return with_added(models.BPE({token: i for i, token in enumerate(tokens)}, []), decoders.ByteLevel())


def pieces(decoder: Decoder | None) -> Tokenizer:
    tokens = ["<unk>", "\u2581", "\u2581\u2581", *WORDS, *(f"\u2581{word}" for word in WORDS)]
    tokens += [f"<0x{byte:02X}>" for byte in (*b"a \xe2\x82\xac\xf0\x9f\x98\x80\xff",)]
    return with_added(models.Unigram([(token, -1.0) for token in dict.fromkeys(tokens)], 0), decoder)


def word_pieces(decoder: Decoder | None) -> Tokenizer:
    tokens = ["[UNK]", "##", *WORDS, *(f"##{word}" for word in WORDS)]
    return with_added(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"), decoder)


def llama(first: int) -> Decoder:
    cut = decoders.Strip(" ", first, 0)
    return decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), cut])


TOKENIZERS = {
    "byte level": byte_level(),
    "metaspace": pieces(decoders.Metaspace()),
    "metaspace, nothing in front": pieces(decoders.Metaspace(prepend_scheme="never")),
    "bytes as LLaMA's": pieces(llama(1)),
    "bytes, three spaces cut": pieces(llama(3)),
    "single characters of the whole": pieces(decoders.Sequence([decoders.Fuse(), decoders.Replace("\u2581", " ")])),
    "patterns of each token": pieces(decoders.Sequence([decoders.Replace(Regex(r"\A\u2581+"), " "), decoders.Fuse()])),
    "patterns of the whole": pieces(decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex(" ?\u2581"), " ")])),
    "word pieces": word_pieces(decoders.WordPiece()),
    "word pieces, uncleaned": word_pieces(decoders.WordPiece(cleanup=False)),
    "suffixes": word_pieces(decoders.BPEDecoder(suffix="t")),
    "doubles removed": word_pieces(decoders.CTC()),
    "none": word_pieces(None),
}
HELD_BACK = ("patterns of the whole", "suffixes", "doubles removed")


@pytest.mark.parametrize("cleans", [False, True])
@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(deadline=None)
@given(data=st.data())
def test_pieces_join_to_the_whole(kind: str, cleans: bool, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[kind]
    detokenizer = Detokenizer(tokenizer, CLEANING if cleans else {})
    known = st.integers(0, tokenizer.get_vocab_size() + 1)  # with ids that no token has
    few = st.lists(known, min_size=1, max_size=3).flatmap(lambda ids: st.lists(st.sampled_from(ids), max_size=80))
    ids = data.draw(st.lists(known, max_size=120) | few)
    found = list(detokenizer.pieces(iter(ids)))
    assert "".join(found) == detokenizer.decode(ids)
    assert "" not in found
    if kind in HELD_BACK:
        assert len(found) <= 2


@settings(deadline=None)
@given(st.text(alphabet=" .?!,'nmtsvera", max_size=60), st.integers(1, 7))
def test_cleaned_pieces_join_to_the_cleaned_whole(text: str, size: int) -> None:
    parts = [text[i : i + size] for i in range(0, len(text), size)]
    assert "".join(cleaned_pieces(parts)) == cleaned(text)


@pytest.mark.parametrize("kind", ["byte level", "metaspace", "bytes as LLaMA's", "word pieces", "none"])
def test_a_piece_costs_no_more_the_longer_the_text(kind: str) -> None:
    detokenizer, longest = Detokenizer(TOKENIZERS[kind], {}), 0
    decode = detokenizer.raw

    def counting(ids: Any) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids)

    detokenizer.raw = counting  # type: ignore[method-assign]
    ids = [5 + i % 7 for i in range(500)]
    assert "".join(detokenizer.pieces(ids)) == decode(ids)
    assert longest <= 40


def test_a_piece_is_given_as_soon_as_its_token_is_there() -> None:
    given_ids: list[int] = []

    def tokens() -> Iterator[int]:
        for token in byte_ids("na\u00efve\u20ac"):
            given_ids.append(token)
            yield token

    stream = Detokenizer(TOKENIZERS["byte level"], {}).pieces(tokens())
    found = [(next(stream), len(given_ids)) for _ in range(6)]
    assert found == [("n", 1), ("a", 2), ("\u00ef", 4), ("v", 5), ("e", 6), ("\u20ac", 9)]


def byte_ids(text: str | bytes) -> list[int]:
    """Ids of the bytes, by the characters that stand for them."""
    data = text.encode() if isinstance(text, str) else text
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    signs = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [BYTES.index(signs[byte]) for byte in data]


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "na\u00efve",
        "\u65e5\u672c\u8a9e",
        "\U0001f600\U0001f468\u200d\U0001f469",
        "a\u0301",
        "",
    ],
)
def test_a_character_of_several_tokens_comes_whole(text: str) -> None:
    found = list(Detokenizer(TOKENIZERS["byte level"], {}).pieces(byte_ids(text)))
    assert found == list(text)


@pytest.mark.parametrize(
    "data", [b"ab\xe6\x97", b"ab\xf0\x9f\x98", b"a\xffb\xe6c", b"a\x80\x80\x80\x80\x80", b"a\xef\xbf\xbdb"]
)
def test_bytes_that_are_no_character_are_shown_as_python_shows_them(data: bytes) -> None:
    found = list(Detokenizer(TOKENIZERS["byte level"], {}).pieces(byte_ids(data)))
    assert "".join(found) == data.decode("utf-8", errors="replace")
    assert found[0] == "a"


def test_spaces_between_words_are_kept_and_the_one_before_the_first_is_not() -> None:
    tokenizer = TOKENIZERS["bytes as LLaMA's"]
    ids = [tokenizer.token_to_id(token) for token in ("\u2581a", "b", "\u2581", "\u2581don", "<s>", "!")]
    assert list(Detokenizer(tokenizer, {}).pieces(ids)) == ["a", "b", " ", " don", "!"]


# As transformers


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("config", [{}, {"clean_up_tokenization_spaces": True}, CLEANING])
def test_texts_are_those_of_transformers(kind: str, config: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = TOKENIZERS[kind]
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", **config)
    detokenizer, size = Detokenizer(tokenizer, config), tokenizer.get_vocab_size()
    for step in (1, 3, 5, 7):
        for first in range(0, size, 17):
            ids = [(first + step * i) % size for i in range(24)]
            assert detokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
