"""Counters: a name, a unit, and how to read it; and files of sysfs, whose absence is a reason and not a zero."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Literal

NOT_SUPPORTED = "not supported"  # by this machine
NOT_MEASURED = "not measured"  # since nobody asked for it

# What a counter counts. Energy and events only grow; the others are what is now.
Kind = Literal["power", "energy", "clock", "temperature", "throttling", "events", "load", "memory"]
UNITS: dict[Kind, str] = {
    "power": "W", "energy": "J", "clock": "MHz", "temperature": "degC", "throttling": "state", "events": "count",
    "load": "%", "memory": "bytes",
}  # fmt: skip


class CounterError(Exception):
    """A counter cannot be read, or no longer; the message is why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Counter:
    """Something that can be read again and again.

    Attributes:
        name: its source and what it is of, such as `rapl.package-0`.
        kind: what it counts; the unit follows from it.
        read: gives the number; raises CounterError.
        total: whether it is, or is a part that adds up to, what the whole machine (or GPU) draws.
    """

    name: str
    kind: Kind
    read: Callable[[], float]
    total: bool = False

    @property
    def unit(self) -> str:
        return UNITS[self.kind]


@dataclasses.dataclass(frozen=True, slots=True)
class Missing:
    """What this machine does not tell, and why."""

    name: str
    reason: str


def text_of(path: Path) -> str:
    """A small file's text without the white space and zeros around it.

    Raises:
        CounterError: it is not there, or not for this user.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip(" \n\t\0")
    except PermissionError as error:
        raise CounterError(f"{path} cannot be read by this user") from error
    except OSError as error:
        raise CounterError(f"{path}: {error.strerror or error}") from error


def number_of(path: Path, scale: float = 1.0) -> float:
    """A file's number, times `scale`.

    Raises:
        CounterError: it cannot be read, or holds no number.
    """
    text = text_of(path)
    try:
        return float(text) * scale
    except ValueError as error:
        raise CounterError(f"{path} holds {text[:40]!r}, no number") from error


def optional_text(path: Path) -> str | None:
    try:
        return text_of(path)
    except CounterError:
        return None


def optional_number(path: Path) -> float | None:
    try:
        return number_of(path)
    except CounterError:
        return None


def folders(root: Path, pattern: str) -> list[Path]:
    """What matches below the root, in an order that does not change."""
    try:
        return sorted(root.glob(pattern), key=lambda path: (len(path.name), path.name))
    except OSError:
        return []


def readable(name: str, kind: Kind, read: Callable[[], float], *, total: bool = False) -> Counter | Missing:
    """The counter if it can be read now, else why not."""
    try:
        read()
    except CounterError as error:
        return Missing(name, str(error))
    return Counter(name, kind, read, total)
