"""Texts from the command line, files and standard input, each knowing where it came from."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import typer

from edgeformer.runtime import EncoderModel, Model
from edgeformer.runtime.errors import InputError

STANDARD_INPUT = "-"


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A text; `where` names its file and line, and is empty for one from the command line."""

    text: str
    where: str = ""

    def error(self, reason: object) -> InputError:
        return InputError(f"{self.where}: {reason}" if self.where else str(reason))


def given(texts: Sequence[str], file: Path | None) -> Iterable[Line]:
    """What a command was given: texts, else the lines of a file, else those of standard input.

    Raises:
        typer.BadParameter: texts and a file.
        InputError: nothing was given and standard input is a terminal; and, as the lines are read, a file that is
            missing or not UTF-8.
    """
    from_standard_input = list(texts) == [STANDARD_INPUT] or str(file) == STANDARD_INPUT
    if texts and file is not None:
        raise typer.BadParameter("give texts or a file, not both")
    if file is not None and not from_standard_input:
        return lines_of(file)
    if texts and not from_standard_input:
        return [argument(text) for text in texts]
    if not from_standard_input and sys.stdin.isatty():
        raise InputError("there are no inputs: give texts, a file, or lines on standard input")
    return decoded(sys.stdin.buffer, "standard input")


def argument(text: str) -> Line:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # bytes that are not UTF-8 arrive as surrogates
        raise InputError(f"input {text!r} is not UTF-8") from error
    return Line(text)


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a UTF-8 file.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            yield from decoded(file, str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def decoded(file: BinaryIO, name: str) -> Iterator[Line]:
    for number, raw in enumerate(file, start=1):
        where = f"{name}, line {number}"
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            wrong = f"byte 0x{error.object[error.start]:02x} at {error.start}"
            raise InputError(f"{where}: it is not UTF-8 ({wrong}); convert the file first") from error
        yield Line(text.removesuffix("\n").removesuffix("\r"), where)


def encode(model: Model | EncoderModel, lines: Iterable[Line]) -> list[list[int]]:
    """Token ids of each line.

    Raises:
        InputError: the model cannot take a line; its place is named.
    """
    rows = []
    for line in lines:
        try:
            of = model.encode_input if isinstance(model, Model) else model.text.encode_source
            rows.append(of(line.text))
        except InputError as error:
            raise line.error(error) from error
    return rows
