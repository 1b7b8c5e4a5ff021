"""Optimization profiles: least, usual and most of every dimension, solved from a model's sizes and what was asked for.

The step graph has two, 0 for prefill and 1 for decoding, where q_len and n are 1; the encoder has one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.runtime.bundle import Limits
from edgeformer.runtime.errors import LimitsError
from edgeformer.runtime.names import Dims, Sizes

Profile = Mapping[str, Limits]  # of every symbolic dimension
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # of one input: least, usual, most

CAPACITY = SOURCE_LEN = 512  # never the full context of a model with a long one, unless it is asked for
BATCH: Limits = (1, 8, 64)  # 12 sources with 4 beams each are 48 rows
Q_LEN = 32  # prompts of translation models are short; longer ones are taken in several steps
ONE: Limits = (1, 1, 1)
HEADS = 4  # TensorRT's attention kernel for a single query of a single row needs as many


@dataclasses.dataclass(frozen=True, slots=True)
class Solved:
    """Profiles of each role, in the engine's order, and the capacity that the step graph gets."""

    capacity: int
    profiles: Mapping[str, tuple[Profile, ...]]


def solve(sizes: Sizes, options: EngineOptions) -> Solved:
    """The profiles of both graphs.

    Raises:
        LimitsError: what was asked for contradicts itself or the model, with every problem.
    """
    capacity = options.capacity if options.capacity is not None else min(sizes.max_positions, CAPACITY)
    batch = options.batch or BATCH
    source_len = options.source_len or rising(min(sizes.max_positions, SOURCE_LEN))
    q_len = options.q_len or rising(min(max(capacity, 1), Q_LEN))
    given = {"--batch": batch, "--q-len": q_len, "--source-len": source_len}
    problems = [
        *(problem for option, limits in given.items() if (problem := not_rising(option, limits))),
        *(problem for option in ("--batch", "--q-len") if (problem := not_from_one(option, given[option]))),
        *too_long(sizes, capacity, q_len, source_len),
    ]
    if problems:
        raise LimitsError("the engine's limits", problems)
    both = {"batch": batch, "source_len": source_len}
    prefill = {**both, "q_len": q_len, "n": (1, 1, q_len[2])}
    # Up to two queries have a kernel where a model's few heads leave one query none.
    decode = {**both, "q_len": ONE if sizes.num_heads >= HEADS else (1, 1, 2), "n": ONE}
    return Solved(capacity, {"encoder": (both,), "decoder": (prefill, decode)})


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


def too_long(sizes: Sizes, capacity: int, q_len: Limits, source_len: Limits) -> Iterator[str]:
    held = f"the model has {sizes.max_positions} positions"
    if not 1 <= capacity <= sizes.max_positions:
        yield f"--capacity is {capacity}, and {held}: choose 1 to {sizes.max_positions}"
    elif q_len[2] > capacity:
        yield f"--q-len goes to {q_len[2]}, and a cache holds {capacity} tokens: lower it, or raise --capacity"
    if source_len[2] > sizes.max_positions:
        yield f"--source-len goes to {source_len[2]}, and {held}: choose at most {sizes.max_positions}"


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
