"""Temperatures, and what the kernel slows down against them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from edgeformer.cli.benching.telemetry.counters import (
    Counter,
    Missing,
    folders,
    number_of,
    optional_text,
    readable,
)

PLACE = "sys/class/thermal"


def find(root: Path) -> Iterator[Counter | Missing]:
    zones = folders(root, f"{PLACE}/thermal_zone*")
    if not zones:
        yield Missing("temperature", f"{root / PLACE} has no thermal zone")
    for zone in zones:
        name = f"temperature.{optional_text(zone / 'type') or zone.name}"
        yield readable(name, "temperature", functools.partial(number_of, zone / "temp", 1e-3))
    yield from cooling(root)


def cooling(root: Path) -> Iterator[Counter | Missing]:
    """Cooling that slows something down; a fan does not."""
    slowing = [
        (device, kind)
        for device in folders(root, f"{PLACE}/cooling_device*")
        if (kind := optional_text(device / "type")) and "fan" not in kind.lower()
    ]
    if not slowing:
        yield Missing("throttling", f"{root / PLACE} has no cooling device that slows anything down")
    for device, kind in slowing:
        name = f"throttling.{device.name.removeprefix('cooling_device')}.{kind}"
        yield readable(name, "throttling", functools.partial(slowed, device / "cur_state"))


def slowed(state: Path) -> float:
    """How far something is slowed down, 0 for not at all; some drivers say -1 for that."""
    return max(0.0, number_of(state))
