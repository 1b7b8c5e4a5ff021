"""Whether an artifact fits into the memory that is free, for so many rows of so many tokens, and what would fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from edgeformer.runtime import machine_memory
from edgeformer.runtime.bundle import Artifact, Manifest
from edgeformer.runtime.errors import NotEnoughMemoryError, OptionError
from edgeformer.runtime.machine_memory import Free
from edgeformer.runtime.memory_needs import Load, Needs, most_rows, needed

USUAL = 512  # tokens of a row or a source, where nothing says how many: never a model's full context


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a load needs, what is free, and the most that would fit.

    Attributes:
        artifact: its name.
        load: what was asked for.
        needs: bytes, by what they are for.
        free: None where it is not known.
        largest_batch: rows of that capacity that fit, 0 where not one does; None where nothing is known to be free.
        largest_capacity: tokens that each of so many rows could hold; of an encoder, that each could read.
    """

    artifact: str
    load: Load
    needs: Needs
    free: Free | None
    largest_batch: int | None
    largest_capacity: int | None

    @property
    def fits(self) -> bool:
        return self.free is None or self.needs.total <= self.free.bytes


def plan_memory(
    manifest: Manifest,
    artifact: Artifact,
    *,
    batch: int = 1,
    capacity: int | None = None,
    source_len: int | None = None,
    free: Free | None = None,
    loaded: bool = False,
) -> MemoryPlan:
    """Plan an artifact's memory.

    Args:
        manifest: of its bundle.
        artifact: which is not loaded for it.
        batch: rows, beams counted one by one.
        capacity: tokens that a row holds; the engine's, or 512 where the model has more positions.
        source_len: tokens of the longest source; the engine's most, or 512 as well.
        free: what there is; this machine is asked where it is None.
        loaded: whether the artifact is loaded already, so that its weights and activations have what they need.

    Raises:
        OptionError: a number below 1, or beyond the model or engine.
    """
    load = the_load(manifest, artifact, batch, capacity, source_len)
    free = free or machine_memory.free_memory(artifact)

    def needs(**changes: int) -> Needs:
        found = needed(manifest, artifact, dataclasses.replace(load, **changes))
        return dataclasses.replace(found, weights=0, activations=0) if loaded else found

    if free is None:
        return MemoryPlan(artifact.name, load, needs(), None, None, None)
    there = free.bytes

    most = most_rows(artifact)
    tokens = "capacity" if load.capacity else "source_len"
    return MemoryPlan(
        artifact.name,
        load,
        needs(),
        free,
        largest_batch=largest(lambda batch: needs(batch=batch).total <= there, most or 1 << 20),
        largest_capacity=largest(lambda count: needs(**{tokens: count}).total <= there, max_tokens(manifest, artifact)),
    )


def the_load(manifest: Manifest, artifact: Artifact, batch: int, capacity: int | None, source_len: int | None) -> Load:
    """What is asked for, with what follows from the artifact where nothing is.

    Raises:
        OptionError: a number below 1, or beyond the model or engine, or without meaning for its kind.
    """
    of, most = f"artifact {artifact.name}", most_of(manifest, artifact)
    if capacity and not most["capacity"]:
        raise OptionError(f"capacity is {capacity}, {of} keeps no cache: source_len is what it reads")
    if source_len and not most["source_len"]:
        raise OptionError(f"source_len is {source_len}, {of} reads no source: its prompts count as capacity")
    given = {"batch": batch, "capacity": capacity, "source_len": source_len}
    usual = {name: longest if artifact.engine else min(longest or 0, USUAL) for name, longest in most.items()}
    load = {name: value if value is not None else usual[name] or 0 for name, value in given.items()}
    for name, value in load.items():
        longest = most[name]
        if value < 1 and longest != 0:
            raise OptionError(f"{name} is {value}, expected at least 1")
        if longest is not None and value > longest:
            raise OptionError(f"{name} is {value}, {of} takes up to {longest}")
    return Load(**load)


def most_of(manifest: Manifest, artifact: Artifact) -> dict[str, int | None]:
    """The most rows, tokens of a row, and tokens of a source: None where only memory bounds them, 0 for none."""
    sizes, engine, alone = manifest.sizes, artifact.engine, manifest.kind == "encoder"
    capacity = 0 if alone else engine.capacity if engine else sizes.max_positions
    source_len = sizes.max_positions if alone else sizes.max_source_positions
    if engine and source_len:
        source_len = min(profile["source_len"][2] for profile in engine.profiles["encoder"])
    return {"batch": most_rows(artifact), "capacity": capacity, "source_len": source_len}


def max_tokens(manifest: Manifest, artifact: Artifact) -> int:
    """The most tokens that a row holds, or that an encoder reads."""
    most = most_of(manifest, artifact)
    return most["capacity"] or most["source_len"] or 0


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits; 0 where none does. What fits must fit with less as well."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def require(plan: MemoryPlan) -> None:
    """Refuse what does not fit, before anything is allocated.

    Raises:
        NotEnoughMemoryError: with what is needed, what is free, and the most that would fit.
    """
    if not plan.fits and plan.free is not None:
        raise NotEnoughMemoryError(refusal(plan, plan.free))


def refusal(plan: MemoryPlan, free: Free) -> str:
    load, needs = plan.load, plan.needs
    parts = {"weights": needs.weights, "caches": needs.caches, "sources": needs.sources,
             "activations": needs.activations, "inputs and outputs": needs.io}  # fmt: skip
    said = ", ".join(f"{name} {megabytes(count)}" for name, count in parts.items() if count)
    rows = f"{load.batch} rows" if load.batch > 1 else "one row"
    message = (
        f"artifact {plan.artifact} needs {megabytes(needs.total)} for {rows} of {load.capacity or load.source_len} "
        f"tokens ({said}), {megabytes(free.bytes)} of {free.of} are free"
    )
    if plan.largest_batch:
        return f"{message}: {plan.largest_batch} rows would fit"
    if plan.largest_capacity:
        return f"{message}: {plan.largest_capacity} tokens a row would fit"
    return f"{message}: end other programs, or take an artifact that stores weights in fewer bits"


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
