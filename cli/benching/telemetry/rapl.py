"""RAPL: the energy that a PC's processor and memory have used. The kernel's powercap serves Intel and AMD alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgeformer.cli.benching.telemetry.counters import (
    Counter,
    Missing,
    folders,
    number_of,
    optional_number,
    readable,
    text_of,
)

PLACE = "sys/class/powercap"
MICROJOULE = 1e-6


class Unwrapped:
    """A cumulative counter that begins anew at its range, read as one that never does.

    A package of 100 W passes a range of 262 kJ in 44 minutes: reading it more often than that is enough.
    """

    def __init__(self, path: Path, span: float) -> None:
        self.path, self.span = path, span
        self.turns, self.last = 0, 0.0

    def __call__(self) -> float:
        """Joules since some beginning.

        Raises:
            CounterError: the file cannot be read.
        """
        now = number_of(self.path, MICROJOULE)
        if now < self.last:
            self.turns += 1
        self.last = now
        return now + self.turns * self.span


def find(root: Path) -> Iterator[Counter | Missing]:
    """Packages, and memory where it has a counter of its own; a package's cores and graphics are inside it."""
    zones = [zone for zone in folders(root, f"{PLACE}/intel-rapl:*") if (zone / "energy_uj").exists()]
    if not zones:
        yield Missing("rapl", f"{root / PLACE} has no intel-rapl zone")
    for zone in zones:
        kind = text_of(zone / "name")
        inside = zone.name.count(":") > 1
        name = f"rapl.{kind}" if not inside else f"rapl.{package_of(zone)}.{kind}"
        span = optional_number(zone / "max_energy_range_uj")
        if span is None:
            yield Missing(
                name, f"{zone / 'max_energy_range_uj'} cannot be read: where the counter begins anew is unknown"
            )
            continue
        adds_up = kind.startswith("package") or kind == "dram"
        yield readable(name, "energy", Unwrapped(zone / "energy_uj", span * MICROJOULE), total=adds_up)


def package_of(zone: Path) -> str:
    parent = zone.name.rpartition(":")[0]
    return text_of(zone.with_name(parent) / "name")
