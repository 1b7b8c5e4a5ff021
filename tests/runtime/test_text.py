"""Streamed text: pieces that join to what `generate` gives, whatever the tokenizer does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from edgeformer.runtime import GenerationConfig, Model
from edgeformer.runtime.errors import InputError, OptionError
from edgeformer.runtime.text import Text

# Pieces of generated text


@pytest.mark.parametrize("config", [None, GenerationConfig(max_new_tokens=3), GenerationConfig(min_new_tokens=20)])
def test_pieces_join_to_what_generate_gives(model: Model, words: list[str], config: GenerationConfig | None) -> None:
    for word in words[:12]:
        pieces = list(model.stream(word, config))
        (generation,) = model.generate(word, config)
        assert "".join(pieces) == generation.text
        assert [piece.strip() for piece in pieces] == generation.text.split()


def test_a_stream_computes_a_piece_when_it_is_asked_for(fast: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    start = fast.executor.start

    def counted(sources: Sequence[Sequence[int]], capacity: int) -> object:
        rows = start(sources, capacity)
        step = rows.step

        def counting(*arguments: object) -> object:
            nonlocal steps
            steps += 1
            return step(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(rows, "step", counting)
        return rows

    monkeypatch.setattr(fast.executor, "start", counted)
    stream = fast.stream("word", GenerationConfig(min_new_tokens=9))
    assert steps == 0
    for expected in (1, 2, 3):
        next(stream)
        assert steps == expected


def test_a_stream_may_be_left_and_others_go_on(fast: Model, words: list[str]) -> None:
    expected = [generation.text for generation in fast.generate(words[:2])]
    left = fast.stream("abandoned")
    next(left)
    first, second = (fast.stream(word) for word in words[:2])
    pieces = {first: next(first), second: next(second)}
    del left
    assert [pieces[stream] + "".join(stream) for stream in (first, second)] == expected


def test_what_cannot_be_streamed_is_refused_at_once(fast: Model) -> None:
    with pytest.raises(OptionError, match="num_beams is 2: only greedy search can stream"):
        fast.stream("word", GenerationConfig(num_beams=2))
    with pytest.raises(OptionError, match="max_new_tokens is 99"):
        fast.stream("word", GenerationConfig(max_new_tokens=99))
    for source, reason in (("w0rd", "'0' at 1"), ("", "empty"), ([], "no tokens"), ("a" * 32, "33 tokens long")):
        with pytest.raises(InputError, match=reason):
            fast.stream(source)


# Tokenizers of other kinds


class Bytes:
    """A byte-level tokenizer: a character of several bytes is several tokens, shown as U+FFFD until it is whole."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return bytes(ids).decode("utf-8", errors="replace")


class Pieces:
    """A tokenizer of word pieces, `_` for a space, that leaves out the space before the first word."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return "".join(self.pieces[i] for i in ids).replace("_", " ").removeprefix(" ")


def pieces_of(tokenizer: object, ids: Sequence[int]) -> list[str]:
    text = object.__new__(Text)
    text.target = tokenizer  # type: ignore[assignment]
    return list(text.pieces(iter(ids)))


@pytest.mark.parametrize(
    "text", ["plain", "na\u00efve", "\u65e5\u672c\u8a9e", "\U0001f600\U0001f468\u200d\U0001f469", "a\u0301", ""]
)
def test_a_character_of_several_tokens_comes_whole(text: str) -> None:
    pieces = pieces_of(Bytes(), text.encode())
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("tail", [b"\xe6", b"\xe6\x97", b"\xf0\x9f\x98"])
def test_a_character_cut_off_at_the_end_is_shown_as_generate_shows_it(tail: bytes) -> None:
    ids = b"ab" + tail
    pieces = pieces_of(Bytes(), ids)
    assert "".join(pieces) == Bytes().decode(ids, skip_special_tokens=True)
    assert pieces[:2] == ["a", "b"]


def test_a_wrong_byte_in_the_middle_is_shown_as_generate_shows_it() -> None:
    ids = b"a\xffb\xe6c"
    assert "".join(pieces_of(Bytes(), ids)) == Bytes().decode(ids, skip_special_tokens=True) == "a\ufffdb\ufffdc"


def test_a_replacement_character_that_the_model_says_itself_comes_through() -> None:
    assert "".join(pieces_of(Bytes(), "a\ufffdb".encode())) == "a\ufffdb"
    assert "".join(pieces_of(Bytes(), "a\ufffd".encode())) == "a\ufffd"


def test_spaces_between_words_are_kept_and_the_one_before_the_first_is_not() -> None:
    tokenizer = Pieces("_he", "llo", "_", "world", "!")
    assert pieces_of(tokenizer, [0, 1, 2, 3, 4]) == ["he", "llo", " ", "world", "!"]


def test_a_piece_is_given_as_soon_as_its_token_is_there() -> None:
    given: list[int] = []

    def tokens() -> Iterator[int]:
        for token in "na\u00efve".encode():
            given.append(token)
            yield token

    text = object.__new__(Text)
    text.target = Bytes()  # type: ignore[assignment]
    stream = text.pieces(tokens())
    assert [(next(stream), len(given)) for _ in range(5)] == [("n", 1), ("a", 2), ("\u00ef", 4), ("v", 5), ("e", 6)]


# Encoding


def test_words_are_spelled_and_ended(fast: Model) -> None:
    assert fast.text.encode_source("ab'") == [4, 5, 3, 2]
    assert fast.text.encode_source("AB\u2019") == [4, 5, 3, 2]


def test_targets_are_read_and_not_ended(fast: Model) -> None:
    ids = fast.text.encode_target("AA AE ZH")
    assert ids == [30, 31, 68]
    assert fast.text.decode(ids) == "AA AE ZH"
    assert fast.text.decode([1, *ids, 2, 0]) == "AA AE ZH"
    assert fast.text.decode([]) == ""
