"""How much memory is free on this machine, for an artifact that runs on its CPU or its GPU."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from edgeformer.runtime.bundle import Artifact
from edgeformer.runtime.errors import BackendUnavailableError

ON_GPU = ("tensorrt", "ort-cuda")  # backends whose artifacts lie in a GPU's memory


@dataclasses.dataclass(frozen=True, slots=True)
class Free:
    """Bytes that are free, and of what: `GPU memory`, `memory`, or `memory that CPU and GPU share`."""

    bytes: int
    of: str


def free_memory(artifact: Artifact) -> Free | None:
    """What is free for an artifact on this machine: of the GPU for one that runs there; None where nobody says."""
    if artifact.backend not in ON_GPU:
        available = available_memory()
        return None if available is None else Free(available, "memory")
    from edgeformer.runtime.backends.tensorrt.driver import open_device

    try:
        device = open_device()
    except BackendUnavailableError:
        return None
    available = available_memory() if device.integrated else None
    if available is not None:  # the driver does not count what the kernel would give back of its file caches
        return Free(available, "memory that CPU and GPU share")
    return Free(device.free_memory()[0], f"GPU memory of {device.name}")


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of the host's memory that programs can have; None where the system does not say."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", meminfo.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
