"""`edgeformer plan`: what memory a model takes, what would fit, and what speed to expect, here or on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from edgeformer.runtime.bundle import Artifact
    from edgeformer.runtime.machine_memory import Free
    from edgeformer.runtime.memory_plan import MemoryPlan


def plan(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A bundle; or a checkpoint's folder, of which config.json is enough."),
    ],
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Plan for a device of the table in docs/sizing.md, such as jetson-orin-nano-8g, or for `this` "
            "machine's CPU, which is measured. A bundle is planned for what it holds and what is free here by default, "
            "a checkpoint for `this`.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="TARGET", help="With --device: one of the device's targets, its first by default."),
    ] = None,
    artifact: Annotated[
        list[str] | None,
        typer.Option(
            "--artifact", metavar="NAME", help="Without --device: what to plan for, may be repeated; all by default."
        ),
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
    """Show what memory a model takes, and the largest batch and capacity that fit.

    Of a bundle, for each artifact and what is free here; nothing is loaded. Every load is checked in the same way, and
    refused with these numbers where it cannot fit. With --device, for each precision that can be made for a device,
    with bounds of speed from its bandwidth and arithmetic, a recommendation and the next commands: before anything is
    converted. The exit code is 0 whether it fits or not.

    Example:
      edgeformer plan bundle/ --batch 64 --capacity 128
      edgeformer plan bundle/ --artifact jetson-orin-jp6-fp16 --free-memory 6G
      edgeformer plan checkpoint/ --device jetson-orin-nano-8g --capacity 2048
    """
    from edgeformer.cli.sizing.asking import is_bundle
    from edgeformer.cli.sizing.devices import THIS
    from edgeformer.exporter.tensorrt.options import parse_bytes
    from edgeformer.runtime.errors import OptionError
    from edgeformer.runtime.machine_memory import Free

    free = Free(parse_bytes("--free-memory", free_memory), "memory as given") if free_memory is not None else None
    load = {"batch": batch, "capacity": capacity, "source_len": source_len}
    if device is None and is_bundle(model):
        if target is not None:
            raise OptionError("--target is for a device: name it with --device, or an artifact with --artifact")
        plan_artifacts(model, artifact, load, free, as_json)
        return
    if artifact:
        raise OptionError("--artifact is for what a bundle holds, on this machine: leave out --device, or it")
    plan_device(model, device or THIS, target, load, free, as_json)


def plan_device(
    model: Path, device: str, target: str | None, load: dict[str, Any], free: Free | None, as_json: bool
) -> None:
    from edgeformer.cli import progress
    from edgeformer.cli.sizing.answering import print_answer
    from edgeformer.cli.sizing.asking import ask

    with progress.steps() as step:
        question = ask(model, device, target=target, free=free, progress=step, **load)
    print_answer(question, model, as_json)


def plan_artifacts(
    bundle: Path, names: list[str] | None, load: dict[str, Any], free: Free | None, as_json: bool
) -> None:
    from edgeformer.cli import printing
    from edgeformer.runtime.bundle import read_manifest
    from edgeformer.runtime.loading import choose
    from edgeformer.runtime.memory_plan import plan_memory

    manifest = read_manifest(bundle)
    chosen: list[Artifact] = [choose(bundle, name) for name in names] if names else list(manifest.artifacts)
    plans = [plan_memory(manifest, one, free=free, **load) for one in chosen]
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
