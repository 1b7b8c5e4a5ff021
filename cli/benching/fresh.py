"""A process of its own that loads an artifact and makes one call: what a start takes, and the most memory held.

A request is a line of JSON on standard input, the reply one on standard output. Run by `starts`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What to load, and the call to make: texts or rows of ids, and the options of the search."""

    bundle: str
    artifact: str
    threads: int | None
    spin: str
    sources: list[Any]
    config: dict[str, Any]


def answer(request: Request) -> dict[str, Any]:
    from edgeformer.cli.benching.encoding import open_subject
    from edgeformer.cli.benching.telemetry import nvml
    from edgeformer.cli.benching.telemetry.counters import Counter
    from edgeformer.cli.benching.telemetry.sampling import Sampler
    from edgeformer.cli.machine import status_bytes
    from edgeformer.runtime import GenerationConfig
    from edgeformer.runtime.cores import Cores

    cores = Cores(request.threads, request.spin)  # type: ignore[arg-type]  # as it was asked for
    config = GenerationConfig(**request.config)
    gpu = [c for c in nvml.find() if isinstance(c, Counter) and c.kind == "memory"]
    with Sampler(gpu, period=0.01) as sampler:
        begin = time.perf_counter()
        model = open_subject(Path(request.bundle), request.artifact, cores)
        seconds = time.perf_counter() - begin
        model.generate(request.sources, config, batch_size=len(request.sources))
    device = [growth(series.values) for series in sampler.samples().series]
    return {"load_seconds": seconds, "peak_bytes": status_bytes("VmHWM"), "device_bytes": max(device, default=None)}


def growth(values: Sequence[float | None]) -> float:
    """How far a GPU's memory in use went above what it was at first."""
    known = [value for value in values if value is not None]
    return max(known) - known[0] if known else 0.0


def main() -> None:
    print(json.dumps(answer(Request(**json.loads(sys.stdin.readline())))))


if __name__ == "__main__":
    main()
