"""A process that measures this machine's ceilings: bytes that all threads read a second, and 32-bit multiply-adds.

A request is a line of JSON on standard input, the reply one on standard output. A process of its own, since a library
of linear algebra takes its number of threads from the environment when it is loaded. Run by `ceilings`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MATRIX = 1536  # rows and columns: three such matrices don't fit into a core's own cache
TRIES = 5  # the best counts: a ceiling is what the machine can do
SPELL = 0.05  # seconds of reading in a try

Floats = NDArray[np.float32]


def multiply_rate() -> float:
    """Additions and multiplications a second in a product of float32 matrices."""
    rng = np.random.default_rng(0)
    one, other = (rng.random((MATRIX, MATRIX), np.float32) for _ in range(2))
    out, best = np.empty_like(one), float("inf")
    for _ in range(TRIES):
        begin = time.perf_counter()
        np.matmul(one, other, out=out)
        best = min(best, time.perf_counter() - begin)
    return 2 * MATRIX**3 / best


def read_rate(size: int, threads: int) -> float:
    """Bytes a second when every thread reads its part of `size` bytes over and over."""
    parts = np.array_split(np.ones(max(size // 4, threads), np.float32), threads)
    once = min(read(parts, 1) for _ in range(2))
    times = max(1, int(SPELL / once))
    total = sum(part.nbytes for part in parts) * times
    return max(total / read(parts, times) for _ in range(TRIES))


def read(parts: Sequence[Floats], times: int) -> float:
    """Seconds in which each part is read so many times, all at once."""
    barrier = threading.Barrier(len(parts) + 1)

    def work(part: Floats) -> None:
        barrier.wait()
        for _ in range(times):
            part.max()  # of numpy's reductions the one that computes least; it lets other threads run
        barrier.wait()

    threads = [threading.Thread(target=work, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    barrier.wait()
    begin = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - begin
    for thread in threads:
        thread.join()
    return seconds


def main() -> None:
    request: dict[str, Any] = json.loads(sys.stdin.readline())
    rates = {str(size): read_rate(size, request["threads"]) for size in request["sizes"]}
    print(json.dumps({"read_bytes_per_second": rates, "flops_per_second": multiply_rate()}))


if __name__ == "__main__":
    main()
