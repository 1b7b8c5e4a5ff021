"""How much memory a build needs, and how much there is."""

from __future__ import annotations

import re
from pathlib import Path

from edgeformer.runtime.errors import NotEnoughMemoryError

CGROUPS = Path("/sys/fs/cgroup")

# Fitted to builds by TensorRT for RTX 1.7: 0.64 and 0.70 GB for the 82 MB of a base model's encoder and decoder in fp16
# and 0.53 and 0.60 GB for the 50 MB that they have in int4. On the low side, so that nothing is refused that fits.
PER_BUILD = 400_000_000
PER_WEIGHT_BYTE = 3


def needed(weights: int) -> int:
    """Bytes that a building process holds at most, from the bytes of a graph's weights."""
    return PER_BUILD + PER_WEIGHT_BYTE * weights


def available(meminfo: Path = Path("/proc/meminfo"), cgroups: Path = CGROUPS) -> int | None:
    """Bytes that a new process can have: what the machine has free, or its container has left; None if unknown."""
    free = []
    try:
        if found := re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE):
            free.append(int(found[1]) << 10)
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
        ):
            if (cgroups / limit).is_file() and (text := (cgroups / limit).read_text().strip()) != "max":
                free.append(int(text) - int((cgroups / used).read_text()))
    except (OSError, ValueError):
        pass
    return max(0, min(free)) if free else None


def check(what: str, weights: int, free: int | None) -> None:
    """Refuse a build that cannot fit.

    Raises:
        NotEnoughMemoryError: with what it needs and what there is.
    """
    if free is not None and (need := needed(weights)) > free:
        raise NotEnoughMemoryError(
            f"building {what} needs about {need / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB is free: "
            "stop other programs, add swap, or build on another machine"
        )


def peak(status: Path = Path("/proc/self/status")) -> int:
    """Bytes that this process has held at most."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found[1]) << 10
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
