"""`edgeformer plan`: what memory an artifact takes, and the most that would fit here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from edgeformer.runtime.bundle import Artifact
    from edgeformer.runtime.memory_plan import Free, MemoryPlan


def plan(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder made by `edgeformer export`.")],
    artifact: Annotated[
        list[str] | None,
        typer.Option("--artifact", metavar="NAME", help="What to plan for, may be repeated; all by default."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", help="Rows together; 12 inputs with 4 beams are 48.")] = 1,
    capacity: Annotated[
        int | None, typer.Option("--capacity", help="Tokens of a row; the engine's, or 512, by default.")
    ] = None,
    source_len: Annotated[
        int | None, typer.Option("--source-len", help="Tokens of a source; the engine's most, or 512, by default.")
    ] = None,
    free_memory: Annotated[
        str | None,
        typer.Option("--free-memory", metavar="SIZE", help="Plan for so much, such as 8G, not for what is free."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what memory each artifact takes, and the largest batch and capacity that fit.

    Nothing is loaded. Every load is checked in the same way, and refused with these numbers where it cannot fit. The
    exit code is 0 whether it fits or not.

    Example:
      edgeformer plan bundle/ --batch 64 --capacity 128
      edgeformer plan bundle/ --artifact jetson-orin-jp6-fp16 --free-memory 6G
    """
    from edgeformer.cli import printing
    from edgeformer.exporter.tensorrt.options import parse_bytes
    from edgeformer.runtime.bundle import read_manifest
    from edgeformer.runtime.loading import choose
    from edgeformer.runtime.memory_plan import Free, plan_memory

    manifest = read_manifest(bundle)
    chosen: list[Artifact] = [choose(bundle, name) for name in artifact] if artifact else list(manifest.artifacts)
    free = Free(parse_bytes("--free-memory", free_memory), "memory as given") if free_memory is not None else None
    plans = [
        plan_memory(manifest, one, batch=batch, capacity=capacity, source_len=source_len, free=free) for one in chosen
    ]
    if as_json:
        printing.print_json({"bundle": str(bundle), "plans": [describe(one) for one in plans]})
        return
    columns = ["artifact", "rows", "tokens", "weights", "caches", "sources", "activations", "in and out", "total",
               "free", "fits", "most rows", "most tokens"]  # fmt: skip
    printing.print_table(columns, [row(one) for one in plans], numbers=columns[1:10] + columns[11:])
    for of in dict.fromkeys(one.free.of for one in plans if one.free):
        printing.print_line(f"free: {of}")


def describe(plan: MemoryPlan) -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(plan), "total": plan.needs.total, "fits": plan.fits}


def row(plan: MemoryPlan) -> tuple[str, ...]:
    from edgeformer.cli.printing import size

    def known(value: int | None) -> str:
        return "unknown" if value is None else str(value)

    needs, free = plan.needs, plan.free
    sizes = (needs.weights, needs.caches, needs.sources, needs.activations, needs.io, needs.total)
    return (
        plan.artifact,
        str(plan.load.batch),
        str(plan.load.capacity or plan.load.source_len),  # an encoder's rows hold what it reads
        *map(size, sizes),
        free_size(free),
        "unknown" if free is None else "yes" if plan.fits else "NO",
        known(plan.largest_batch),
        known(plan.largest_capacity),
    )


def free_size(free: Free | None) -> str:
    from edgeformer.cli.printing import size

    return "unknown" if free is None else size(free.bytes)
