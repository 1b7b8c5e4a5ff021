"""The most that this machine can read and compute, as `probe` measures it, and how near a cell comes to it."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeformer.cli.benching.starts import asked
from edgeformer.cli.benching.telemetry.counters import NOT_SUPPORTED, optional_text
from edgeformer.cli.benching.work import Work

FAR = 512 << 20  # bytes of an array that most caches don't hold
MOST_OF_MEMORY = 0.25
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NVPL_BLAS_NUM_THREADS")


@dataclasses.dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine can do.

    Attributes:
        threads: that it was measured with.
        read_bytes_per_second: by the bytes that are read over and over: what fits a cache is read faster.
        flops_per_second: of float32 matrix products.
    """

    threads: int
    read_bytes_per_second: dict[int, float]
    flops_per_second: float


def measure_ceilings(threads: int, sizes: Sequence[int], root: Path = Path("/")) -> Ceilings:
    """Measure with arrays of these sizes, and with one that lies in memory.

    Raises:
        ProcessError: the probe failed.
    """
    free = re.search(r"^MemAvailable:\s*(\d+) kB", optional_text(root / "proc/meminfo") or "", re.MULTILINE)
    most = int(int(free[1]) * 1024 * MOST_OF_MEMORY) if free else FAR
    request = {"threads": threads, "sizes": sorted({min(size, most) for size in (*sizes, FAR)})}
    found = asked(
        [sys.executable, "-m", "edgeformer.cli.benching.probe"], request, dict.fromkeys(THREADS, str(threads))
    )
    rates = {int(size): rate for size, rate in found["read_bytes_per_second"].items()}
    return Ceilings(threads, rates, found["flops_per_second"])


def shares(work: Work | None, seconds: float | None, ceilings: Ceilings | None) -> dict[str, Any] | str:
    """How much of each ceiling work that took so long has used.

    Args:
        work: None where it is not known what was read and computed.
        seconds: the median; None where nothing was measured.
        ceilings: None where this machine's are not those of what ran.
    """
    if work is None or seconds is None or ceilings is None:
        return NOT_SUPPORTED
    rates = ceilings.read_bytes_per_second
    size = min(rates, key=lambda size: abs(size - work.weight_bytes))
    return {
        "bytes": work.bytes,
        "flops": work.flops,
        "bytes_per_second": work.bytes / seconds,
        "flops_per_second": work.flops / seconds,
        "bandwidth_share": work.bytes / seconds / rates[size],
        "compute_share": work.flops / seconds / ceilings.flops_per_second,
    }
