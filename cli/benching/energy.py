"""Energy of calls: counters of energy read before and after, or power over time where there are none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgeformer.cli.benching.telemetry.counters import NOT_SUPPORTED, Counter, CounterError
from edgeformer.cli.benching.telemetry.sampling import Sampler

SECONDS = 2.0  # of calls of one cell on end: many samples, and many steps of the slowest counters


def choose(counters: Sequence[Counter]) -> list[Counter]:
    """Counters that add up to what the machine draws: of one part, energy rather than power."""
    total = [counter for counter in counters if counter.total]
    counted = {part_of(counter) for counter in total if counter.kind == "energy"}
    return [c for c in total if c.kind == "energy" or (c.kind == "power" and part_of(c) not in counted)]


def part_of(counter: Counter) -> str:
    return counter.name.partition(".")[0]


def measure_energy(
    call: Callable[[], int],
    counters: Sequence[Counter],
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any] | str:
    """Repeat a call for a while.

    Args:
        call: makes it, and gives the number of tokens.
        counters: of this machine.
        seconds: the least time that calls are repeated for.
        clock: in seconds.

    Returns:
        joules a token and average watts, what the machine draws without work included; or "not supported".
    """
    chosen = choose(counters)
    if not chosen:
        return NOT_SUPPORTED
    energies, powers = ([c for c in chosen if c.kind == kind] for kind in ("energy", "power"))
    tokens, calls = 0, 0
    try:
        with Sampler(powers, clock, period=0.02) as sampler:
            begin, before = clock(), [counter.read() for counter in energies]
            while not calls or clock() - begin < seconds:
                tokens += call()
                calls += 1
            after, took = [counter.read() for counter in energies], clock() - begin
    except CounterError:
        return NOT_SUPPORTED
    samples = sampler.samples()
    joules = sum(after) - sum(before)
    for series in samples.series:
        watts = mean_power(samples.times, series.values)
        if watts is None:
            return NOT_SUPPORTED
        joules += watts * took
    return {
        "joules_per_token": joules / tokens,
        "watts": joules / took,
        "seconds": took,
        "calls": calls,
        "tokens": tokens,
        "counters": [counter.name for counter in chosen],
    }


def mean_power(times: Sequence[float], watts: Sequence[float | None]) -> float | None:
    """Over time, by the trapezoidal rule; None without two samples."""
    known = [(moment, value) for moment, value in zip(times, watts, strict=True) if value is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return known[0][1] if known else None
    moments, values = np.array(known).T
    areas = np.diff(moments) * (values[1:] + values[:-1]) / 2
    return float(areas.sum() / (moments[-1] - moments[0]))
