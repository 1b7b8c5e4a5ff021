"""What the engines of benchmarks/peer_speed.py are asked to do, with random ids that are always the same."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from random_checkpoints import SPECIAL, Shape

PROMPT = 16  # tokens of the one prompt that is decoded from
RAGGED_PROMPTS = (8, 64)  # tokens, least and most
SOURCES = (8, 40)
SENTENCES = (16, 256)
EQUAL = 128  # tokens of sentences of equal lengths
BEAMS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """A work, and what is made of its time.

    Attributes:
        name: as it is printed.
        given: the fields of `answering.Work`.
        units: how many of `unit` it is.
        unit: what is counted.
        after_first: whether the time of the first new token is taken off, which is that of reading the prompts.
    """

    name: str
    given: dict[str, Any]
    units: int
    unit: str
    after_first: bool = False


def plan(kind: str, shape: Shape, batches: Sequence[int], new_tokens: int, sentences: int) -> list[Planned]:
    """The works of a kind of model.

    Args:
        kind: decoder, encoder or paper.
        shape: of the model.
        batches: of the encoder, those of sentences; one by one as well where 1 is among them.
        new_tokens: of every row that is generated.
        sentences: that an encoder reads.
    """
    rng = np.random.default_rng(1)
    if kind == "decoder":
        reading = [read(rng, shape, length) for length in (128, 512)]
        return [*reading, *(decode(rng, shape, batch, new_tokens) for batch in batches)]
    if kind == "encoder":
        return [
            encode(rng, shape, lengths, batch, sentences)
            for batch, lengths in itertools.product(batches, ((EQUAL, EQUAL), SENTENCES))
        ]
    return [translate(rng, shape, batch, beams, new_tokens) for beams in (1, BEAMS) for batch in batches]


def rows(rng: np.random.Generator, shape: Shape, count: int, lengths: tuple[int, int]) -> list[list[int]]:
    """Random ids; lengths are evenly spaced, in random order."""
    spread = rng.permutation(np.linspace(*lengths, count).round().astype(int))
    return [rng.integers(len(SPECIAL), shape.vocab_size, length).tolist() for length in spread]


def read(rng: np.random.Generator, shape: Shape, length: int) -> Planned:
    given = {"inputs": rows(rng, shape, 1, (length, length)), "batch": 1, "new_tokens": 1}
    return Planned(f"prompt of {length}", given, length, "tokens")


def decode(rng: np.random.Generator, shape: Shape, batch: int, new_tokens: int) -> Planned:
    lengths = (PROMPT, PROMPT) if batch == 1 else RAGGED_PROMPTS
    given = {"inputs": rows(rng, shape, batch, lengths), "batch": batch, "new_tokens": new_tokens}
    name = f"decode, batch {batch}" + (" ragged" if batch > 1 else "")
    return Planned(name, given, batch * (new_tokens - 1), "tokens", after_first=True)


def encode(rng: np.random.Generator, shape: Shape, lengths: tuple[int, int], batch: int, sentences: int) -> Planned:
    which = f"of {EQUAL}" if lengths == (EQUAL, EQUAL) else f"of {lengths[0]} to {lengths[1]}"
    given = {"inputs": rows(rng, shape, sentences, lengths), "batch": batch}
    return Planned(f"sentences {which}, batch {batch}", given, sentences, "sentences")


def translate(rng: np.random.Generator, shape: Shape, batch: int, beams: int, new_tokens: int) -> Planned:
    count = batch if batch > 1 else 4
    inputs = rows(rng, shape, count, SOURCES)
    given = {"inputs": inputs, "batch": batch, "new_tokens": new_tokens, "beams": beams}
    search = "greedy" if beams == 1 else f"beam {beams}"
    return Planned(f"{search}, batch {batch}", given, count * new_tokens, "tokens")
