"""NVIDIA's driver: power, energy, clocks, temperature, throttling and memory of each GPU, through `nvidia-ml-py`."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from edgeformer.cli.benching.telemetry.counters import Counter, CounterError, Kind, Missing, readable

# Reasons for low clocks that are no limit: nothing to do, and clocks that someone set.
NO_LIMIT = 0x1 | 0x2 | 0x100
MILLI = 1e-3


def find(library: Any = None) -> Iterator[Counter | Missing]:
    """Every GPU's counters.

    Args:
        library: what has the functions of `pynvml`, which is imported where it is None.
    """
    if library is None:
        if find_spec("pynvml") is None:
            yield Missing("gpu", "nvidia-ml-py is not installed")
            return
        library = importlib.import_module("pynvml")
    try:
        library.nvmlInit()
        handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
    except library.NVMLError as error:
        yield Missing("gpu", f"NVML: {error}")
        return
    if not handles:
        yield Missing("gpu", "NVML finds no GPU")
    for number, handle in enumerate(handles):
        for name, kind, read in readings(library, handle):
            total = kind in ("power", "energy")
            yield readable(f"gpu{number}.{name}", kind, functools.partial(asked, library, read), total=total)


def asked(library: Any, read: Callable[[], float]) -> float:
    try:
        return float(read())
    except library.NVMLError as error:
        raise CounterError(f"NVML: {error}") from error


def readings(library: Any, handle: Any) -> Iterator[tuple[str, Kind, Callable[[], float]]]:
    def clock(kind: int) -> Callable[[], float]:
        return lambda: library.nvmlDeviceGetClockInfo(handle, kind)

    yield "power", "power", lambda: library.nvmlDeviceGetPowerUsage(handle) * MILLI
    yield "energy", "energy", lambda: library.nvmlDeviceGetTotalEnergyConsumption(handle) * MILLI
    yield "clock", "clock", clock(library.NVML_CLOCK_SM)
    yield "memory_clock", "clock", clock(library.NVML_CLOCK_MEM)
    yield (
        "temperature",
        "temperature",
        lambda: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
    )
    yield (
        "throttling",
        "throttling",
        lambda: limits(library)(handle) & ~NO_LIMIT,
    )
    yield "load", "load", lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu
    yield "memory", "memory", lambda: library.nvmlDeviceGetMemoryInfo(handle).used


def limits(library: Any) -> Callable[[Any], int]:
    """What gives the reasons for low clocks: renamed in CUDA 13, and drivers from before have the old name alone."""
    name = "nvmlDeviceGetCurrentClocksThrottleReasons"
    found: Callable[[Any], int] = getattr(library, name, None) or library.nvmlDeviceGetCurrentClocksEventReasons
    return found
