"""What disturbed a run: other work on the cores, a hypervisor, throttling, clocks that moved, calls that drifted."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgeformer.cli.benching.significance import mann_whitney
from edgeformer.cli.benching.telemetry.counters import optional_text
from edgeformer.cli.benching.telemetry.sampling import Samples, Series

OTHERS = 0.15  # cores that other processes may take
STOLEN = 0.01  # of the machine's time that a hypervisor may give to others
SHORTEST = 0.25  # seconds of a run that the kernel's hundredths of seconds can be held against
MOVED = 0.10  # of the usual clock that clocks may range over
DRIFT, SURELY = 0.05, 0.001  # by how much later calls may be slower than earlier ones, and how sure that must be
# Fields of /proc/stat's first line.
USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL = range(8)


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What the cores have done so far, in seconds.

    Attributes:
        wall: a clock.
        own: processor time of this process and of those that it waited for.
        busy: processor time of all processes of the machine, None where the kernel does not tell.
        stolen: time in which a hypervisor ran something else, None as well.
    """

    wall: float
    own: float
    busy: float | None
    stolen: float | None


def read_load(root: Path = Path("/")) -> Load:
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    line = (optional_text(root / "proc/stat") or "").partition("\n")[0].split()
    if len(line) < 9 or line[0] != "cpu":
        return Load(time.perf_counter(), own, None, None)
    fields = [int(field) / os.sysconf("SC_CLK_TCK") for field in line[1:9]]
    busy = sum(fields[i] for i in (USER, NICE, SYSTEM, IRQ, SOFTIRQ))
    return Load(time.perf_counter(), own, busy, fields[STEAL])


def finding(kind: str, said: str) -> dict[str, str]:
    return {"kind": kind, "said": said}


def find_noise(before: Load, after: Load, cores: int, samples: Samples, cells: Sequence[dict[str, Any]]) -> Any:
    """Everything that disturbed a run, as a record tells it: whether it is noisy, by what, and what was looked at.

    Args:
        before, after: the cores' work at the beginning and the end of the measured calls.
        cores: of the machine.
        samples: telemetry meanwhile.
        cells: of the record, with their samples.
    """
    others, stolen = others_of(before, after), stolen_of(before, after, cores)
    short = "too short to tell" if after.wall - before.wall < SHORTEST else "not supported"
    found = [*loads(others, stolen), *throttled(samples.series), *moved(samples.series), *drifted(cells)]
    return {
        "noisy": bool(found),
        "findings": found,
        "other_cores": short if others is None else others,
        "stolen_share": short if stolen is None else stolen,
    }


def others_of(before: Load, after: Load) -> float | None:
    """Cores that other processes kept busy, on average."""
    wall = after.wall - before.wall
    if before.busy is None or after.busy is None or wall < SHORTEST:
        return None
    return max(0.0, (after.busy - before.busy - (after.own - before.own)) / wall)


def stolen_of(before: Load, after: Load, cores: int) -> float | None:
    wall = after.wall - before.wall
    if before.stolen is None or after.stolen is None or wall < SHORTEST:
        return None
    return max(0.0, (after.stolen - before.stolen) / (wall * cores))


def loads(others: float | None, stolen: float | None) -> Iterator[dict[str, str]]:
    if others is not None and others > OTHERS:
        yield finding("load", f"other processes kept {others:.2f} cores busy")
    if stolen is not None and stolen > STOLEN:
        yield finding("steal", f"the hypervisor took {stolen:.1%} of the cores' time")


def throttled(series: Sequence[Series]) -> Iterator[dict[str, str]]:
    for one in series:
        values = [value for value in one.values if value is not None]
        kind, name = one.counter.kind, one.counter.name
        if kind == "throttling" and any(values):
            share = sum(map(bool, values)) / len(values)
            yield finding("throttling", f"{name} slowed the machine down in {share:.0%} of the samples")
        if kind == "events" and values and values[-1] > values[0]:
            yield finding("throttling", f"{name} counted {values[-1] - values[0]:.0f} events")


def moved(series: Sequence[Series]) -> Iterator[dict[str, str]]:
    """Clocks whose middle nine tenths range over too much: a single low sample is a moment without work."""
    for one in series:
        values = [value for value in one.values if value is not None]
        if one.counter.kind != "clock" or len(values) < 10:
            continue
        low, usual, high = np.percentile(values, [5, 50, 95])
        if usual and (high - low) / usual > MOVED:
            yield finding("clocks", f"{one.counter.name} moved from {low:.0f} to {high:.0f} {one.counter.unit}")


def drifted(cells: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Calls of the second half that surely took another time than those of the first, each beside its cell's median."""
    calls: list[tuple[float, float]] = []
    for cell in cells:
        if cell.get("replay"):  # its latencies follow the arrivals
            continue
        seconds = np.asarray(cell["samples"]["e2e"])
        calls += zip(cell["samples"]["began"], seconds / np.median(seconds), strict=True)
    calls.sort()
    half = len(calls) // 2
    early, late = [value for _, value in calls[:half]], [value for _, value in calls[half:]]
    if half < 8:
        return
    change = float(np.median(late) / np.median(early) - 1)
    if abs(change) > DRIFT and mann_whitney(early, late) < SURELY:
        yield finding("drift", f"calls of the second half differ by {change:+.1%} from those of the first")
