"""Percentiles with the interval that they may lie in: a bootstrap over calls, which order statistics limit.

The steps of one call are alike, so that they are not drawn one by one: a call is drawn with all of its steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 1000
PERCENTS = (50, 90, 99)
CHUNK = 4_000_000  # numbers of the resamples that are held at once

Values = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its 95 % interval; None where so few samples say nothing of that bound."""

    value: float
    low: float | None
    high: float | None

    def scaled(self, by: float) -> Interval:
        low, high = self.low, self.high
        return Interval(self.value * by, None if low is None else low * by, None if high is None else high * by)


@dataclasses.dataclass(frozen=True, slots=True)
class Draws:
    """An estimate, and the same of each resample: float64 (RESAMPLES,)."""

    value: float
    resampled: Values


def nearest_rank(ordered: Values, percent: float) -> float:
    """The least sample that at least so many percent of all don't exceed: one that did occur.

    Args:
        ordered: float64 (n,), ascending, at least one.
        percent: above 0, up to 100.
    """
    return float(ordered[max(0, int(np.ceil(percent / 100 * len(ordered) - 1e-9)) - 1)])


def percentiles(
    calls: Sequence[Sequence[float]], percents: Sequence[float] = PERCENTS, seed: int = 0
) -> list[Interval]:
    """Of all samples of all calls, at least one.

    Args:
        calls: the samples of each call.
        percents: which to give.
        seed: of the resamples.
    """
    samples, found = sum(map(len, calls)), []
    for percent, drawn in zip(percents, percentile_draws(calls, percents, seed), strict=True):
        (low, high), (below, above) = bounds(drawn.resampled), bounded(percent / 100, samples)
        found.append(Interval(drawn.value, low if below else None, high if above else None))
    return found


def bounded(share: float, samples: int) -> tuple[bool, bool]:
    """Whether a percentile can be said to lie above the least sample, and below the greatest, with this confidence.

    All samples lie above it with probability (1 - share) ** samples, below it with share ** samples.
    """
    error = (1 - CONFIDENCE) / 2
    return (1 - share) ** samples <= error, share**samples <= error


def percentile_draws(calls: Sequence[Sequence[float]], percents: Sequence[float], seed: int = 0) -> list[Draws]:
    """Percentiles of all samples, and of RESAMPLES draws of as many calls."""
    values = np.concatenate([np.asarray(call, np.float64) for call in calls])
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    owner = np.repeat(np.arange(len(calls)), [len(call) for call in calls])[order]
    rng, parts = np.random.default_rng(seed), list[Values]()
    at_once = max(1, CHUNK // max(len(ordered), len(calls)))
    for first in range(0, RESAMPLES, at_once):
        count = min(at_once, RESAMPLES - first)
        weights = rng.multinomial(len(calls), np.full(len(calls), 1 / len(calls)), size=count)  # (count, calls)
        reached = np.cumsum(weights[:, owner], axis=1)  # (count, samples)
        wanted = np.ceil(np.asarray(percents) / 100 * reached[:, -1:] - 1e-9)  # (count, percents)
        parts.append(ordered[np.minimum(first_reaching(reached, wanted), len(ordered) - 1)])
    columns = np.concatenate(parts).T  # (percents, RESAMPLES)
    return [Draws(nearest_rank(ordered, p), column) for p, column in zip(percents, columns, strict=True)]


def first_reaching(reached: NDArray[np.int64], wanted: Values) -> NDArray[np.intp]:
    """In each row of (rows, samples), which only grows, where each of (rows, percents) is reached first."""
    rows, samples = reached.shape
    apart = (np.arange(rows) * (int(reached.max()) + 1))[:, None]  # lets one search serve all rows
    places: NDArray[np.intp] = np.searchsorted((reached + apart).ravel(), (wanted + apart).ravel())
    within: NDArray[np.intp] = places.reshape(wanted.shape) - np.arange(rows)[:, None] * samples
    return within


def bounds(drawn: Values) -> tuple[float, float]:
    """The middle 95 % of what resamples gave."""
    low, high = np.percentile(drawn, [50 * (1 - CONFIDENCE), 100 - 50 * (1 - CONFIDENCE)])
    return float(low), float(high)


def rate_draws(amounts: Sequence[float], seconds: Sequence[float], seed: int = 0) -> Draws:
    """All amounts over all seconds, and the same of RESAMPLES draws of as many calls."""
    several, spent = np.asarray(amounts, np.float64), np.asarray(seconds, np.float64)
    drawn = np.random.default_rng(seed).integers(len(several), size=(RESAMPLES, len(several)))
    return Draws(float(several.sum() / spent.sum()), several[drawn].sum(axis=1) / spent[drawn].sum(axis=1))


def rate(amounts: Sequence[float], seconds: Sequence[float], seed: int = 0) -> Interval:
    """All amounts over all seconds; without bounds for a single call."""
    drawn = rate_draws(amounts, seconds, seed)
    return Interval(drawn.value, *(bounds(drawn.resampled) if len(amounts) > 1 else (None, None)))


def ratio(base: Draws, other: Draws) -> Interval:
    """One estimate over another of calls that are not the same."""
    return Interval(other.value / base.value, *bounds(other.resampled / base.resampled))


def far_out(values: Sequence[float]) -> int:
    """Samples above the third quartile by more than three times the distance of the quartiles (Tukey's fences)."""
    if len(values) < 4:
        return 0
    first, third = np.percentile(values, [25, 75])
    return int(np.count_nonzero(np.asarray(values) > third + 3 * (third - first)))
