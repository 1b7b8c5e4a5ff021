"""Protocol buffer messages, read without a library: https://protobuf.dev/programming-guides/encoding.

What is read of a file that way is a handful of fields, on devices that have no onnx and for tokenizers' models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

Buffer = TypeVar("Buffer", bytes, memoryview)


def fields(message: Buffer) -> Iterator[tuple[int, int | Buffer]]:
    """Number and value of each field of a message: numbers for varints, parts of the message for all others.

    Raises:
        ValueError: it is not such a message.
    """
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(message, at)
            yield number, value
            continue
        if wire == 2:
            size, at = varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"field {number} has wire type {wire}, which is not used any more")
        if at + size > len(message):
            raise ValueError(f"field {number} of {size} bytes goes beyond its message")
        yield number, message[at : at + size]
        at += size


def varints(packed: bytes | memoryview) -> Iterator[int]:
    """The numbers of a packed field."""
    at = 0
    while at < len(packed):
        value, at = varint(packed, at)
        yield value


def varint(message: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, lowest first, and where it ends.

    Raises:
        ValueError: it goes beyond the message, or has more than 64 bits.
    """
    number = shift = 0
    while at < len(message):
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
    raise ValueError("a number goes beyond its message")
