"""Streamed text: pieces that join to what `generate` gives, whatever the tokenizer does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgeformer.runtime import GenerationConfig, Model
from edgeformer.runtime.errors import InputError, OptionError

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


# Encoding


def test_words_are_spelled_and_ended(fast: Model) -> None:
    assert fast.text.encode_source("ab'") == [4, 5, 3, 2]
    assert fast.text.encode_source("AB\u2019") == [4, 5, 3, 2]


def test_what_is_no_text_is_refused(fast: Model) -> None:
    for encode in (
        fast.text.encode_source,
        fast.text.encode_target,
        fast.text.encode_prompt,
        fast.text.encode_rendered,
    ):
        with pytest.raises(InputError, match="is not text: surrogates not allowed at 1"):
            encode("a\ud800")


def test_a_rendered_prompt_has_its_special_tokens_already(fast: Model) -> None:
    assert fast.text.encode_rendered("ab'</s>") == fast.text.encode_source("ab'") == [4, 5, 3, 2]


def test_targets_are_read_and_not_ended(fast: Model) -> None:
    ids = fast.text.encode_target("AA AE ZH")
    assert ids == [30, 31, 68]
    assert fast.text.decode(ids) == "AA AE ZH"
    assert fast.text.decode([1, *ids, 2, 0]) == "AA AE ZH"
    assert fast.text.decode([]) == ""
