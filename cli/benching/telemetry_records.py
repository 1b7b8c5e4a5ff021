"""Telemetry as a record holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgeformer.cli.benching.telemetry.counters import NOT_SUPPORTED, Counter, Missing
from edgeformer.cli.benching.telemetry.sampling import Samples

DIGITS = 6  # of a number; more would be noise, and make a record long


def describe(found: Sequence[Counter | Missing], samples: Samples) -> dict[str, Any]:
    """Every counter with its samples, and what is not supported with the reason."""
    read = {series.counter.name: series.values for series in samples.series}
    counters = [
        {"name": one.name, "unit": one.unit, "kind": one.kind, "values": [rounded(v) for v in read[one.name]]}
        if isinstance(one, Counter)
        else {"name": one.name, "values": NOT_SUPPORTED, "reason": one.reason}
        for one in found
    ]
    times = [round(moment, 4) for moment in samples.times]
    return {"times": times, "counters": counters, "overhead": samples.overhead}


def rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
