"""Two records, cell by cell: by how much each latency changed, and whether that can be chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgeformer.cli.benching.intervals import Interval, percentile_draws, ratio
from edgeformer.cli.benching.significance import holm, mann_whitney
from edgeformer.runtime.errors import InputError

METRICS = ("ttft", "itl", "e2e")
LEVEL = 0.05  # of a difference that chance would make, over all cells and metrics of two records together
# What should be the same in two records; one that is older may lack some.
COMPARABLE = (
    "bundle.sha256", "machine.cpu", "machine.cores", "settings.threads", "settings.spin", "settings.prompts", "commit",
)  # fmt: skip
KEYS = ("batch", "num_beams", "prompt", "new_tokens", "replay")

Record = Mapping[str, Any]
Named = tuple[str, Record]


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """The same cell of two records, with the artifacts that it is of."""

    cell: str
    base: Record
    other: Record
    base_artifact: Record
    other_artifact: Record

    @property
    def noisy(self) -> bool:
        return any(artifact["noise"]["noisy"] for artifact in (self.base_artifact, self.other_artifact))


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A latency's median in both records.

    Attributes:
        cell, metric: what it is of.
        base_ms, other_ms: the medians.
        ratio: the other's over the base's, with its 95 % interval.
        chance: that calls of one distribution are ranked so far apart, corrected for the number of differences.
        noisy: whether something disturbed one of the runs.
    """

    cell: str
    metric: str
    base_ms: float
    other_ms: float
    ratio: Interval
    chance: float
    noisy: bool

    @property
    def verdict(self) -> str:
        """slower, faster, or no difference shown: both tests must agree. Of a noisy run it says so."""
        low, high = self.ratio.low, self.ratio.high
        found = "no difference shown"
        if self.chance < LEVEL and low is not None and high is not None and not low <= 1 <= high:
            found = "slower" if low > 1 else "faster"
        return f"{found} (noisy)" if self.noisy else found


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """One record held against another, with what makes the two hard to compare."""

    base: str
    other: str
    pairs: tuple[Pair, ...]
    differences: tuple[Difference, ...]
    remarks: tuple[str, ...]

    def values(self) -> dict[str, Any]:
        """For JSON."""
        rows = [{**dataclasses.asdict(one), "verdict": one.verdict} for one in self.differences]
        return {"base": self.base, "other": self.other, "differences": rows, "remarks": list(self.remarks)}


def compare(base: Named, other: Named) -> Comparison:
    """Hold a record against another.

    Args:
        base, other: a name and a record each.

    Raises:
        InputError: they have no cell in common.
    """
    pairs = tuple(pairs_of(base[1], other[1]))
    if not pairs:
        raise InputError(
            f"{base[0]} and {other[0]} have no cell in common: measure the same artifact with the same "
            "--batch, --prompt, --new-tokens and --num-beams"
        )
    rows = [
        (pair, metric, per_call(pair.base, metric), per_call(pair.other, metric))
        for pair in pairs
        for metric in METRICS
        if pair.base[f"{metric}_ms"] and pair.other[f"{metric}_ms"]
    ]
    chances = holm([mann_whitney(one, two) for _, _, one, two in rows])
    differences = tuple(
        difference(pair, metric, one, two, chance)
        for (pair, metric, one, two), chance in zip(rows, chances, strict=True)
    )
    return Comparison(base[0], other[0], pairs, differences, tuple(remarks(base, other)))


def difference(pair: Pair, metric: str, one: Sequence[float], two: Sequence[float], chance: float) -> Difference:
    first, second = (percentile_draws([[v] for v in side], [50], seed)[0] for seed, side in enumerate((one, two)))
    change, before, after = ratio(first, second), first.value * 1e3, second.value * 1e3
    return Difference(pair.cell, metric, before, after, change, chance, pair.noisy)


def per_call(cell: Record, metric: str) -> list[float]:
    """One number a call, which alone is independent of others: of steps, their mean."""
    samples: Sequence[Any] = cell["samples"][metric]
    if metric == "itl":
        return [float(np.mean(steps)) for steps in samples if steps]
    return list(samples)


def pairs_of(base: Record, other: Record) -> Iterator[Pair]:
    """Cells of the same shape of artifacts of the same name; where both records have only one, whatever its name."""
    mine, theirs = base["artifacts"], other["artifacts"]
    alone = len(mine) == len(theirs) == 1
    for one in mine:
        for two in theirs:
            if not alone and one["artifact"] != two["artifact"]:
                continue
            cells = {key_of(cell): cell for cell in two["cells"]}
            for cell in one["cells"]:
                if (found := cells.get(key_of(cell))) is not None:
                    yield Pair(name_of(one["artifact"], cell), cell, found, one, two)


def key_of(cell: Record) -> tuple[Any, ...]:
    return tuple(cell.get(name) for name in KEYS)


def name_of(artifact: str, cell: Record) -> str:
    """A cell in a few words, such as `ort-cpu-fp32, batch 8, prompt 16, 32 new`."""
    parts = [artifact, f"batch {cell['batch']}"]
    parts += [f"{cell['num_beams']} beams"] if cell["num_beams"] > 1 else []
    parts += [f"prompt {cell['prompt']}"] if cell["prompt"] else []
    parts += [f"{cell['new_tokens']} new"] if cell["new_tokens"] else []
    return ", ".join([*parts, "replay"] if cell.get("replay") else parts)


def remarks(base: Named, other: Named) -> Iterator[str]:
    """What one should know before one believes a comparison."""
    for name, record in (base, other):
        for artifact in record["artifacts"]:
            said = "; ".join(finding["said"] for finding in artifact["noise"]["findings"])
            if said:
                yield f"{name} is noisy ({artifact['artifact']}): {said}"
    for place in COMPARABLE:
        group, _, key = place.partition(".")
        one, two = (record[group].get(key) if key else record[group] for record in (base[1], other[1]))
        if one != two:
            yield f"{place} differs: {one} and {two}"
