"""What rounds in turns say: medians with their spread, ratios within pairs, and the best of each side."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

WER_MARGIN = 0.2  # percentage points that 8 bits may lose


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """A median over rounds, with the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits: int) -> str:
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}-{self.most:.{digits}f})"


def ratio(ours: Sequence[float], peers: Sequence[float]) -> Spread:
    """How many times as fast ours is: the ratio of medians, and the extremes of single rounds.

    Args:
        ours, peers: seconds of each round, in the same order. The work is the same, so time is speed.
    """
    single = [peer / mine for mine, peer in zip(ours, peers, strict=True)]
    return Spread(statistics.median(peers) / statistics.median(ours), min(single), max(single))


def interleave(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Each name once, those of a pair beside each other; pairs that follow one another may share a peer."""
    return list(dict.fromkeys(name for pair in pairs for name in pair))


def accurate_enough(wer: Mapping[str, float], baseline: str) -> list[str]:
    """The names whose word error rate is at most WER_MARGIN points above the baseline's (without one, the least)."""
    bound = wer.get(baseline, min(wer.values())) + WER_MARGIN
    return [name for name, rate in wer.items() if rate <= bound + 1e-9]


def fastest(seconds: Mapping[str, Sequence[float]], names: Iterable[str]) -> str:
    """The name with the smallest median."""
    return min(names, key=lambda name: statistics.median(seconds[name]))


def share_equal(one: Sequence[str], other: Sequence[str]) -> float:
    """Percent of places with the same text."""
    return 100 * sum(a == b for a, b in zip(one, other, strict=True)) / len(one)
