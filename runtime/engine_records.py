"""What cannot be in an engine's record: said when the bundle is read, so that whoever uses a record can rely on it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgeformer.runtime.bundle import Engine

DTYPES = ("float16", "bfloat16", "float32")
TEXTS = ("module", "version", "platform", "dtype")
SWITCHES = ("version_compatible", "hardware_compatible", "stripped", "streamable")


def senseless_engine(engine: Engine, roles: Collection[str]) -> Iterator[str]:
    """What is wrong with a record, a sentence each; types first, since the rest is read by them.

    Args:
        engine: the record.
        roles: those that the model's kind has.
    """
    wrong = [f"{name} is {getattr(engine, name)!r}, expected text" for name in TEXTS if not is_text(engine, name)]
    wrong += [
        f"{name} is {getattr(engine, name)!r}, expected true or false"
        for name in SWITCHES
        if type(getattr(engine, name)) is not bool
    ]
    wrong += [f"{name} is no object" for name in ("graphs", "memory") if not isinstance(getattr(engine, name), Mapping)]
    if wrong:
        yield from wrong
        return
    if not re.match(r"\d+\.\d+", engine.version):
        yield f"version is {engine.version!r}, expected one such as 10.13.3.9"
    if engine.dtype not in DTYPES:
        yield f"dtype is {engine.dtype!r}, expected {', '.join(DTYPES)}"
    least = int("decoder" in roles)  # an encoder alone keeps no caches
    if type(engine.capacity) is not int or engine.capacity < least:
        yield f"capacity is {engine.capacity!r}, expected a whole number of at least {least}"
    for name in engine.compute_capabilities:
        if not re.fullmatch(r"\d+\.\d+", name):
            yield f"compute capability is {name!r}, expected one such as 8.9"
    for role, count in engine.memory.items():
        if type(count) is not int or count < 0:
            yield f"memory of the {role} is {count!r}, expected a number of bytes"
    yield from senseless_profiles(engine, roles)


def senseless_profiles(engine: Engine, roles: Collection[str]) -> Iterator[str]:
    needed = ("batch", "source_len") if "encoder" in roles else ("batch",)
    for role in roles:
        profiles = engine.profiles.get(role, ())
        if not profiles:
            yield f"the {role} has no profile"
        for profile in profiles:
            more = ("q_len", "n") if role == "decoder" else ()
            yield from (f"a profile of the {role} has no {name}" for name in (*needed, *more) if name not in profile)


def is_text(engine: Engine, name: str) -> bool:
    return isinstance(getattr(engine, name), str)
