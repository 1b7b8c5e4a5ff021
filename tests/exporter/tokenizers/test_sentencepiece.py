"""SentencePiece models give the ids that the sentencepiece library gives, on awkward strings as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from edgeformer.exporter.tokenizers.sentencepiece import Vocabulary, build_tokenizer
from edgeformer.exporter.tokenizers.sentencepiece_model import SentencePieceModel, read_sentencepiece
from edgeformer.runtime.errors import CheckpointError

from .conftest import LLAMA

sentencepiece = pytest.importorskip("sentencepiece")

KINDS: dict[str, dict[str, Any]] = {
    "unigram": {"vocab_size": 700},
    "unigram, bytes": {"vocab_size": 900, "byte_fallback": True, "character_coverage": 0.99},
    "unigram, case folded": {"vocab_size": 580, "normalization_rule_name": "nmt_nfkc_cf"},
    "unigram, nothing in front": {"vocab_size": 700, "add_dummy_prefix": False},
    "unigram, own symbols": {"vocab_size": 700, "user_defined_symbols": ["<sep>", "GPU"]},
    "bpe": {"vocab_size": 800, "model_type": "bpe"},
    "bpe, bytes, as LLaMA": LLAMA,
}


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, train: Callable[..., Path]) -> Path:
    return train(**KINDS[request.param])


def converted(model: SentencePieceModel, prefixed: str = "always") -> Tokenizer:
    tokens = [piece.text for piece in model.pieces]
    return Tokenizer.from_str(build_tokenizer(model, Vocabulary(tokens, "<unk>", frozenset(), prefixed)).to_str())


@pytest.mark.parametrize("prefixed", ["always", "first"])
def test_ids_are_those_of_sentencepiece(path: Path, page: list[str], prefixed: str) -> None:
    original = sentencepiece.SentencePieceProcessor(str(path))
    tokenizer = converted(read_sentencepiece(path), prefixed)
    for text in [*page, "-" * 80, "|---|---:|" * 9]:
        ids, expected = tokenizer.encode(text).ids, original.encode(text)
        assert ids == expected or as_likely(original, ids, expected), text


def as_likely(original: Any, ids: list[int], expected: list[int]) -> bool:
    """Whether a run of equal characters has several best segmentations, of which each library takes one."""
    likelihoods = [sum(map(original.get_score, some)) for some in (ids, expected)]
    return sorted(ids) == sorted(expected) and likelihoods[0] == pytest.approx(likelihoods[1], rel=1e-6)


def test_texts_come_back_as_from_sentencepiece(path: Path, page: list[str]) -> None:
    original = sentencepiece.SentencePieceProcessor(str(path))
    tokenizer = converted(read_sentencepiece(path))
    for text in page:
        ids = original.encode(text)
        if original.unk_id() not in ids and not text.startswith("\u2581"):
            assert tokenizer.decode(ids) == original.decode(ids), text


def test_a_symbol_of_the_users_own_is_one_piece_in_any_word(train: Callable[..., Path]) -> None:
    path = train(**KINDS["unigram, own symbols"])
    original, tokenizer = sentencepiece.SentencePieceProcessor(str(path)), converted(read_sentencepiece(path))
    for text in ("a<sep>b", "a <sep> b", "a<sep> b<sep>", "xGPUx GPU"):
        assert tokenizer.encode(text).ids == original.encode(text), text


def test_what_the_file_says_is_read(train: Callable[..., Path]) -> None:
    path = train(**KINDS["bpe, bytes, as LLaMA"])
    original, model = sentencepiece.SentencePieceProcessor(str(path)), read_sentencepiece(path)
    assert [piece.text for piece in model.pieces] == [original.id_to_piece(i) for i in range(len(original))]
    assert [piece.score for piece in model.pieces] == [original.get_score(i) for i in range(len(original))]
    assert [p.kind for p in model.pieces[:4]] == [2, 3, 3, 6]
    assert (model.kind, model.rules, model.charsmap) == (2, "identity", b"")
    assert (model.byte_fallback, model.add_dummy_prefix, model.remove_extra_whitespaces) == (True, True, False)


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "bytes"])
def test_a_damaged_file_is_refused_with_its_name(train: Callable[..., Path], tmp_path: Path, damage: str) -> None:
    whole = train(**KINDS["unigram"]).read_bytes()
    contents = {
        "cut": whole[:5000],
        "text": b"version https://git-lfs.example/spec",
        "empty": b"",
        "bytes": b"\xff" * 99,
    }
    path = tmp_path / "spiece.model"
    path.write_bytes(contents[damage])
    with pytest.raises(CheckpointError, match="spiece.model: it (is no SentencePiece model|holds no pieces)"):
        read_sentencepiece(path)


def test_models_of_other_kinds_are_refused(train: Callable[..., Path]) -> None:
    for options, reason in (
        ({"model_type": "char", "vocab_size": 200}, "its model_type is 4, expected unigram"),
        ({"treat_whitespace_as_suffix": True, "vocab_size": 600}, "treat_whitespace_as_suffix"),
    ):
        with pytest.raises(CheckpointError, match=reason):
            read_sentencepiece(train(**options))
