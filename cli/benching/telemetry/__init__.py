"""What a machine tells of itself while it works: power, energy, clocks, temperatures, throttling.

Every source looks below a root folder, so that a recorded tree stands for a board. What a machine does not tell is a
`Missing` with the reason, never a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgeformer.cli.benching.telemetry import boards, cpu, jetson, nvml, rails, rapl, thermal
from edgeformer.cli.benching.telemetry.counters import Counter, Missing

SYSFS_SOURCES = (rapl, rails, cpu, jetson, thermal)


def find_counters(root: Path = Path("/")) -> list[Counter | Missing]:
    """Every counter of this machine, and what it lacks; the GPU's driver is asked where the root is the real one."""
    found = [counter for source in SYSFS_SOURCES for counter in source.find(root)]
    return found + (list(nvml.find()) if root == Path("/") else [])


def facts(root: Path = Path("/")) -> dict[str, str]:
    """What does not change during a run: releases, power mode, governor; "not supported" where it is not told."""
    return {**boards.facts(root), **cpu.facts(root)}


def supported(found: Sequence[Counter | Missing]) -> list[Counter]:
    return [counter for counter in found if isinstance(counter, Counter)]
