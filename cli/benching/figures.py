"""What the charts of records show, whoever draws them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgeformer.cli.benching.charts import Axis, Line
from edgeformer.cli.benching.comparing import name_of
from edgeformer.cli.benching.wording import share_of

Record = Mapping[str, Any]
Named = tuple[str, Record]
MOST_LINES = 6  # as many as can be told apart
TIMED = {"power": "power (W)", "clock": "clock (MHz)", "temperature": "temperature (degC)", "load": "load (%)"}


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A chart that is still to be drawn."""

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]


def figures(records: Sequence[Named]) -> list[Figure]:
    """All charts for which records hold something."""
    found = [
        *distributions(records),
        *throughput(records),
        *(figure for record in records for figure in roofline(record)),
        *(figure for record in records for figure in over_time(record)),
    ]
    return found


def cells(records: Sequence[Named]) -> Iterator[tuple[str, Record]]:
    """Every cell with a name, which says the record's where there are several."""
    for name, record in records:
        for artifact in record["artifacts"]:
            for cell in artifact["cells"]:
                place = name_of(artifact["artifact"], cell)
                yield (f"{name}: {place}" if len(records) > 1 else place), cell


def distributions(records: Sequence[Named]) -> Iterator[Figure]:
    """What share of calls, or of steps, took at most so long."""
    for metric, what in (("ttft", "time to first token"), ("itl", "between tokens"), ("e2e", "whole calls")):
        curves = []
        for name, cell in cells(records):
            samples = cell["samples"][metric]
            values = [v for steps in samples for v in steps] if metric == "itl" else samples
            if values:
                curves.append(Line(name, curve(np.asarray(values) * 1e3)))
        for part in groups(curves):
            every = [point[0] for line in part for point in line.points]
            title = f"Latency, {what}: share of samples below"
            positive = max(min(every), 1e-6)
            yield Figure(title, Axis.of("ms", [positive, max(every)], log=True), Axis("share", 0.0, 1.0), part)


def curve(values: Any) -> list[tuple[float, float]]:
    """At most 101 points of a distribution's cumulative share."""
    shares = np.linspace(0, 1, 101)
    return [(max(float(v), 1e-6), float(s)) for v, s in zip(np.quantile(values, shares), shares, strict=True)]


def groups(lines: Sequence[Line], most: int = MOST_LINES) -> Iterator[tuple[Line, ...]]:
    for first in range(0, len(lines), most):
        yield tuple(lines[first : first + most])


def throughput(records: Sequence[Named]) -> Iterator[Figure]:
    """Tokens a second over the batch, a line for cells that differ in nothing else."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, cell in cells(records):
        family = name.replace(f", batch {cell['batch']}", "")
        lines.setdefault(family, []).append((cell["batch"], cell["tokens_per_second"]["value"]))
    for part in groups([Line(name, sorted(points)) for name, points in lines.items()]):
        batches, rates = zip(*(point for line in part for point in line.points), strict=True)
        x = Axis.of("batch", batches, log=max(batches) / min(batches) > 8)
        yield Figure("Throughput against batch", x, Axis.of("tokens/s", rates, zero=True), part)


def roofline(named: Named) -> Iterator[Figure]:
    """Operations a second over operations a byte, below what the machine can do."""
    name, record = named
    ceilings = record["ceilings"]
    if isinstance(ceilings, str):
        return
    points = [
        Line(place, [(share["flops"] / share["bytes"], share["flops_per_second"])], joined=False)
        for place, cell in cells([named])
        if not isinstance(share := share_of(cell), str)
    ]
    for part in groups(points, MOST_LINES - 2):
        roofs = list(roofs_over(ceilings, [line.points[0][0] for line in part]))
        spots = [point for line in (*roofs, *part) for point in line.points]
        x = Axis.of("operations a byte", [across for across, _ in spots], log=True)
        y = Axis.of("operations a second", [up for _, up in spots], log=True)
        yield Figure(f"Roofline, {name}", x, y, (*roofs, *part))


def roofs_over(ceilings: Mapping[str, Any], across: Sequence[float]) -> Iterator[Line]:
    """What the machine can do at most: when weights come from memory, and when they are as small as those measured."""
    peak, rates = ceilings["flops_per_second"], ceilings["read_bytes_per_second"]
    least, far = min(rates, key=int), max(rates, key=int)
    for size, said in {far: "memory", least: f"{int(least) / 1e6:.0f} MB read again and again"}.items():
        ridge = peak / rates[size]
        ends = (min(*across, ridge) / 2, ridge, max(*across, ridge) * 4)
        yield Line(f"ceiling, {said}", [(at, min(peak, at * rates[size])) for at in ends])


def over_time(named: Named) -> Iterator[Figure]:
    """Power, clocks and temperatures while an artifact was measured."""
    name, record = named
    for artifact in record["artifacts"]:
        telemetry = artifact["telemetry"]
        for kind, label in TIMED.items():
            lines = [
                Line(counter["name"], series(telemetry["times"], counter["values"]))
                for counter in telemetry["counters"]
                if counter.get("kind") == kind
            ]
            for part in groups([line for line in (*lines, *powers(telemetry, kind)) if len(line.points) > 1]):
                times, values = zip(*(point for line in part for point in line.points), strict=True)
                title = f"{name}, {artifact['artifact']}: {label} over time"
                yield Figure(title, Axis.of("seconds", times), Axis.of(label, values), part)


def series(times: Sequence[float], values: Sequence[float | None]) -> list[tuple[float, float]]:
    return [(moment, value) for moment, value in zip(times, values, strict=True) if value is not None]


def powers(telemetry: Record, kind: str) -> Iterator[Line]:
    """Power from counters of energy: the differences between samples."""
    if kind != "power":
        return
    for counter in telemetry["counters"]:
        if counter.get("kind") != "energy":
            continue
        known = series(telemetry["times"], counter["values"])
        watts = [
            (after[0], (after[1] - before[1]) / (after[0] - before[0]))
            for before, after in itertools.pairwise(known)
            if after[0] > before[0]
        ]
        yield Line(counter["name"], watts)
