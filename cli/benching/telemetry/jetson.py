"""A Jetson's clocks of GPU and memory, the GPU's load, and how often it drew too much current."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from edgeformer.cli.benching.telemetry.counters import Counter, Missing, folders, number_of, optional_text, readable

GPU_NAMES = ("gpu", "ga10b", "gv11b", "gp10b")
EMC_RATE = "sys/kernel/debug/bpmp/debug/clk/emc/rate"  # for root alone
HERTZ = 1e-6


def find(root: Path) -> Iterator[Counter | Missing]:
    """Nothing on what is no Jetson: there a GPU's driver is asked instead."""
    if not is_jetson(root):
        return
    gpus = gpu_clocks(root)
    if not gpus:
        yield Missing("jetson.gpu_clock", f"{root / 'sys/class/devfreq'} has no GPU")
    for number, device in enumerate(gpus):
        name = "jetson.gpu_clock" if number == 0 else f"jetson.gpu_clock.{device.name}"
        yield readable(name, "clock", functools.partial(number_of, device / "cur_freq", HERTZ))
    yield readable("jetson.emc_clock", "clock", functools.partial(number_of, emc_clock(root), HERTZ))
    yield gpu_load(root)
    events = folders(root, "sys/class/hwmon/hwmon*/oc*_event_cnt")
    if not events:
        yield Missing("jetson.overcurrent", f"{root / 'sys/class/hwmon'} has no count of overcurrent events")
    for event in events:
        name = event.name.removesuffix("_event_cnt")
        yield readable(f"jetson.overcurrent.{name}", "events", functools.partial(number_of, event))


def is_jetson(root: Path) -> bool:
    board = optional_text(root / "proc/device-tree/model") or ""
    return "jetson" in board.lower() or (root / "etc/nv_tegra_release").exists()


def gpu_clocks(root: Path) -> list[Path]:
    """The GPU's devfreq devices: 17000000.gpu on Orin, one for each clock domain on Thor."""
    devices = folders(root, "sys/class/devfreq/*")
    return [device for device in devices if any(name in device.name for name in GPU_NAMES)]


def emc_clock(root: Path) -> Path:
    devices = [device / "cur_freq" for device in folders(root, "sys/class/devfreq/*") if "emc" in device.name]
    return next(iter(devices), root / EMC_RATE)


def gpu_load(root: Path) -> Counter | Missing:
    """In percent; the files hold parts of a thousand."""
    places = [
        root / "sys/devices/gpu.0/load",
        *folders(root, "sys/devices/platform/*.gpu/load"),
        *folders(root, "sys/devices/platform/*/*.gpu/load"),
    ]
    place = next((path for path in places if path.exists()), None)
    if place is None:
        return Missing("jetson.gpu_load", f"{root / 'sys/devices'} has no load of a GPU")
    return readable("jetson.gpu_load", "load", functools.partial(number_of, place, 0.1))
