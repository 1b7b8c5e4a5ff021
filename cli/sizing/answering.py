"""A plan for a device, printed as tables or as JSON."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from edgeformer.cli import printing
from edgeformer.cli.sizing import tables
from edgeformer.cli.sizing.advice import Advice, advise
from edgeformer.cli.sizing.asking import is_bundle
from edgeformer.cli.sizing.planning import Question, Sized, sized
from edgeformer.cli.sizing.roofline import Bound


def print_answer(question: Question, model: Path, as_json: bool) -> None:
    """Plan, recommend, and print."""
    plans, bundle = sized(question), is_bundle(model)
    advice = advise(question, plans, model, bundle)
    if as_json:
        printing.print_json(describe(question, plans, advice, model))
        return
    for line in (tables.model_line(question, not bundle), tables.device_line(question), tables.load_line(question)):
        printing.print_line(line)
    printing.print_line()
    printing.print_table(tables.MEMORY, [tables.memory_row(plan) for plan in plans], numbers=tables.MEMORY[1:])
    columns = tables.CALLS if question.shape.kind == "encoder" else tables.SPEED
    printing.print_table(columns, [tables.speed_row(plan) for plan in plans], numbers=columns[1:3])
    for line in (tables.MEMORY_LEGEND, *tables.speed_legend(question, plans), f"device: {question.device.source}"):
        printing.print_line(line)
    printing.print_line(f"\n{advice.reason}")
    for command in advice.commands:
        printing.print_line(f"  {command}")


def describe(question: Question, plans: list[Sized], advice: Advice, model: Path) -> dict[str, Any]:
    shape = question.shape
    return {
        "model": {
            "path": str(model),
            "family": shape.model_type,
            "kind": shape.kind,
            "parameters": shape.parameters,
            "sizes": dataclasses.asdict(shape.sizes),
            "windows": list(shape.windows),
        },
        "device": tables.describe_device(question.device),
        "target": question.target.name,
        "load": dataclasses.asdict(question.load),
        "free": dataclasses.asdict(question.free) if question.free else None,
        "precisions": [describe_plan(plan) for plan in plans],
        "recommended": {"precision": advice.precision, "reason": advice.reason, "commands": list(advice.commands)},
    }


def describe_plan(plan: Sized) -> dict[str, Any]:
    low, high, most = plan.speed.tokens_per_second(plan.load.batch)
    step = plan.speed.step
    return {
        "precision": plan.precision,
        "built": plan.built,
        "needs": {**dataclasses.asdict(plan.needs), "total": plan.needs.total},
        "cache_bytes_per_token": plan.cache_per_token,
        "fits": plan.fits,
        "largest_capacity": plan.largest_capacity,
        "largest_batch": plan.largest_batch,
        "building_bytes": plan.building,
        "first": describe_bound(plan.speed.first),
        "step": describe_bound(step) if step else None,
        "tokens_per_second": None if step is None else {"low": low, "high": high, "at_most": most},
        "efficiency": dataclasses.asdict(plan.speed.efficiency),
    }


def describe_bound(bound: Bound) -> dict[str, Any]:
    return {**dataclasses.asdict(bound), "seconds": bound.seconds, "by": bound.by}
