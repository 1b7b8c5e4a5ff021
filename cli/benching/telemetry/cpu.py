"""The processor's clocks, what governs them, and how often it was too hot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from edgeformer.cli.benching.telemetry.counters import (
    NOT_SUPPORTED,
    Counter,
    Missing,
    folders,
    number_of,
    optional_text,
    readable,
)

CORES = "sys/devices/system/cpu/cpu[0-9]*"


def find(root: Path) -> Iterator[Counter | Missing]:
    """The fastest core's clock, which idle cores do not pull down, and the packages' times of throttling."""
    clocks = folders(root, f"{CORES}/cpufreq/scaling_cur_freq")
    if clocks:
        yield readable("cpu.clock", "clock", lambda: max(number_of(path, 1e-3) for path in clocks))
    else:
        yield Missing("cpu.clock", f"{root / 'sys/devices/system/cpu'} has no cpufreq")
    throttled = folders(root, f"{CORES}/thermal_throttle/package_throttle_count")
    if throttled:  # cores of a package show the same count
        yield readable("cpu.throttled", "events", lambda: max(map(number_of, throttled)))
    else:
        yield Missing("cpu.throttled", f"{root / 'sys/devices/system/cpu'} has no thermal_throttle")


def facts(root: Path) -> dict[str, str]:
    governors = distinct(folders(root, f"{CORES}/cpufreq/scaling_governor"))
    return {"cpu_governor": ", ".join(governors) or NOT_SUPPORTED, "cpu_boost": boost(root)}


def distinct(files: Sequence[Path]) -> list[str]:
    return sorted({text for path in files if (text := optional_text(path))})


def boost(root: Path) -> str:
    """Whether cores may exceed their base clock: on, off, or not supported."""
    cpus = root / "sys/devices/system/cpu"
    no_turbo, allowed = optional_text(cpus / "intel_pstate/no_turbo"), optional_text(cpus / "cpufreq/boost")
    if no_turbo in ("0", "1"):
        return "on" if no_turbo == "0" else "off"
    if allowed in ("0", "1"):
        return "on" if allowed == "1" else "off"
    return NOT_SUPPORTED
