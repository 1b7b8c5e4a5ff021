"""SentencePiece model files, read without the sentencepiece library.

The file is one protocol buffer message, `ModelProto`; its fields are those of sentencepiece_model.proto of
https://github.com/google/sentencepiece. A handful of them is all that tokenizing needs.
"""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

from edgeformer.runtime.errors import CheckpointError
from edgeformer.runtime.protobuf import fields

SPACE = "\u2581"  # what a piece has for a space

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    text: str
    score: float
    kind: int


@dataclasses.dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """What a SentencePiece model file says.

    Attributes:
        pieces: by their ids.
        kind: UNIGRAM or BPE.
        rules: the name of the rules in `charsmap`, such as nmt_nfkc.
        charsmap: the compiled rules that characters are normalized with; none where it is empty.
        byte_fallback: whether characters outside the vocabulary are spelled in bytes.
        add_dummy_prefix: whether a text gets a space in front.
        remove_extra_whitespaces: whether spaces are cut off at both ends, and doubled ones made one.
    """

    pieces: tuple[Piece, ...]
    kind: int
    rules: str
    charsmap: bytes
    byte_fallback: bool
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a model file.

    Raises:
        CheckpointError: it cannot be read, is no such file, or is of a kind that is not known here.
    """
    subject = f"SentencePiece model {path}"
    try:
        message = list(fields(path.read_bytes()))
        pieces = tuple(read_piece(as_bytes(value)) for number, value in message if number == 1)
        trainer, normalizer = ({}, {})  # type: tuple[dict[int, int | bytes], dict[int, int | bytes]]
        for number, value in message:
            if number in (2, 3):
                (trainer if number == 2 else normalizer).update(fields(as_bytes(value)))
    except (IndexError, TypeError, ValueError, struct.error) as error:
        raise CheckpointError(subject, [f"it is no SentencePiece model, or damaged: {error}"]) from error
    except OSError as error:
        raise CheckpointError(subject, [f"it cannot be read: {error.strerror}"]) from error
    kind = trainer.get(3, UNIGRAM)
    problems = [] if pieces else ["it holds no pieces"]
    if kind not in (UNIGRAM, BPE):
        problems.append(f"its model_type is {kind!r}, expected unigram ({UNIGRAM}) or bpe ({BPE})")
    if trainer.get(24):
        problems.append("it treats spaces as suffixes (treat_whitespace_as_suffix), which is not supported")
    if not normalizer.get(5, 1):
        problems.append("it leaves spaces as they are (escape_whitespaces is off), which is not supported")
    if problems:
        raise CheckpointError(subject, problems)
    return SentencePieceModel(
        pieces=pieces,
        kind=int(kind),
        rules=as_bytes(normalizer.get(1, b"")).decode("utf-8", errors="replace"),
        charsmap=as_bytes(normalizer.get(2, b"")),
        byte_fallback=bool(trainer.get(35, 0)),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
    )


def read_piece(message: bytes) -> Piece:
    values = dict(fields(message))
    (score,) = struct.unpack("<f", as_bytes(values.get(2, bytes(4))))
    kind = values.get(3, NORMAL)
    if not isinstance(kind, int):
        raise TypeError(f"the type of a piece is {kind!r}")
    return Piece(as_bytes(values.get(1, b"")).decode("utf-8"), score, kind)


def as_bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a field holds the number {value} where bytes are expected")
    return value
