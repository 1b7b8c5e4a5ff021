"""Optimization profiles: least, usual and most of every dimension, solved from a model's sizes and what was asked for.

The step graph has two, 0 for prefill and 1 for decoding, where q_len and n are 1; an encoder has one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from edgeformer.exporter.tensorrt.options import EngineOptions, flag
from edgeformer.runtime.bundle import Kind, Limits
from edgeformer.runtime.errors import LimitsError
from edgeformer.runtime.names import Dims, Sizes

Profile = Mapping[str, Limits]  # of every symbolic dimension
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # of one input: least, usual, most

CAPACITY = SOURCE_LEN = 512  # never the full context of a model with a long one, unless it is asked for
BATCH: dict[Kind, Limits] = {
    "encoder-decoder": (1, 8, 64),  # 12 sources with 4 beams each are 48 rows
    "decoder": (1, 4, 32),  # large vocabularies: each row brings 32 positions' logits to the activations
    "encoder": (1, 8, 64),
}
# Of a step: what a translation begins with is one token, a language model's prompt a page. Longer ones are taken in
# several steps.
Q_LEN: dict[Kind, int] = {"encoder-decoder": 32, "decoder": 256, "encoder": 0}
WANTED = 32  # positions of a row whose logits are given at once
ONE: Limits = (1, 1, 1)
HEADS = 4  # TensorRT's attention kernel for a single query of a single row needs as many
WITHOUT_MEANING: dict[Kind, dict[str, str]] = {
    "encoder-decoder": {},
    "decoder": {"source_len": "a language model reads no source: its prompts count as --capacity"},
    "encoder": dict.fromkeys(("q_len", "capacity"), "an encoder keeps no cache: --source-len is what it reads"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Solved:
    """Profiles of each role, in the engine's order, and the capacity of the step graph, 0 where there is none."""

    capacity: int
    profiles: Mapping[str, tuple[Profile, ...]]


def solve(kind: Kind, sizes: Sizes, options: EngineOptions) -> Solved:
    """The profiles of a model's graphs.

    Args:
        kind: of the model.
        sizes: its sizes.
        options: what was asked for.

    Raises:
        LimitsError: what was asked for contradicts itself or the model, with every problem.
    """
    without = WITHOUT_MEANING[kind]
    positions = sizes.max_positions if kind == "encoder" else sizes.max_source_positions
    capacity = options.capacity if options.capacity is not None else min(sizes.max_positions, CAPACITY)
    given = {"batch": options.batch or BATCH[kind]}
    if "q_len" not in without:
        given["q_len"] = options.q_len or rising(min(max(capacity, 1), Q_LEN[kind]))
    if "source_len" not in without:
        given["source_len"] = options.source_len or rising(min(positions, SOURCE_LEN))
    problems = [
        *(f"{flag(name)} is without meaning: {why}" for name, why in without.items() if getattr(options, name)),
        *(problem for name, limits in given.items() if (problem := not_rising(flag(name), limits))),
        *(problem for name in ("batch", "q_len") if (problem := not_from_one(flag(name), given.get(name, ONE)))),
        *too_long(sizes, capacity, given.get("q_len", ONE), given.get("source_len", ONE), positions),
    ]
    if problems:
        raise LimitsError("the engine's limits", problems)
    return solved(kind, sizes, 0 if kind == "encoder" else capacity, given)


def solved(kind: Kind, sizes: Sizes, capacity: int, given: Mapping[str, Limits]) -> Solved:
    """What follows from limits that fit together."""
    longest = given["source_len" if kind == "encoder" else "q_len"]
    wanted = (1, 1, min(longest[2], WANTED))
    if kind == "encoder":
        return Solved(capacity, {"encoder": ({**given, "n": wanted},)})
    # Up to two queries have a kernel where a model's few heads leave one query none.
    single = ONE if sizes.num_heads >= HEADS else (1, 1, 2)
    decoder = ({**given, "n": wanted}, {**given, "q_len": single, "n": ONE})
    if kind == "decoder":
        return Solved(capacity, {"decoder": decoder})
    encoder = {name: limits for name, limits in given.items() if name != "q_len"}
    return Solved(capacity, {"encoder": (encoder,), "decoder": decoder})


def rising(most: int) -> Limits:
    """From one to most; the kernels are chosen for an eighth of it, since most texts are short."""
    return 1, max(1, most // 8), most


def not_rising(option: str, limits: Limits) -> str | None:
    least, usual, most = limits
    if 1 <= least <= usual <= most:
        return None
    return f"{option} goes from {least} by {usual} to {most}, expected rising numbers of at least 1"


def not_from_one(option: str, limits: Limits) -> str | None:
    """Rows leave one by one and grow token by token: the runtime loads no engine that cannot take one."""
    least, usual, most = limits
    return f"{option} goes from {least}, expected from 1: take 1:{usual}:{most}" if 1 < least <= usual <= most else None


def too_long(sizes: Sizes, capacity: int, q_len: Limits, source_len: Limits, source_positions: int) -> Iterator[str]:
    held = f"the model has {sizes.max_positions} positions"
    if not 1 <= capacity <= sizes.max_positions:
        yield f"--capacity is {capacity}, and {held}: choose 1 to {sizes.max_positions}"
    elif q_len[2] > capacity:
        yield f"--q-len goes to {q_len[2]}, and a cache holds {capacity} tokens: lower it, or raise --capacity"
    if source_len[2] > max(source_positions, 1):
        read = f"the model reads {source_positions} positions"
        yield f"--source-len goes to {source_len[2]}, and {read}: choose at most {source_positions}"


def input_shapes(inputs: Mapping[str, Dims], profiles: Sequence[Profile]) -> list[dict[str, Shapes]]:
    """The shapes of a graph's inputs in each profile.

    Args:
        inputs: dimensions of each input: numbers, and names of symbolic ones.
        profiles: limits of every symbolic dimension.

    Raises:
        LimitsError: a dimension is in no profile.
    """
    unknown = {d: name for name, dims in inputs.items() for d in dims if isinstance(d, str) and d not in profiles[0]}
    if unknown:
        raise LimitsError(
            "the graph", [f"dimension {dim} of input {name} is in no profile" for dim, name in unknown.items()]
        )
    return [{name: shapes_of(dims, profile) for name, dims in inputs.items()} for profile in profiles]


def shapes_of(dims: Dims, profile: Profile) -> Shapes:
    limits = [profile[dim] if isinstance(dim, str) else (dim, dim, dim) for dim in dims]
    least, usual, most = (tuple(limit[i] for limit in limits) for i in range(3))
    return least, usual, most
