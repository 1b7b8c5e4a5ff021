"""Power rails of a board: INA3221 and INA238 monitors as the kernel shows them, through hwmon or the older iio."""

from __future__ import annotations

import functools
import re
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

MONITORS = ("ina3221", "ina238", "ina2xx", "ina226")
# Rails that the whole board draws through. Where there is none, all rails are parts that add up.
WHOLE_BOARD = ("VDD_IN", "VIN", "POM_5V_IN", "5V_IN")
MILLI, MICRO = 1e-3, 1e-6


def find(root: Path) -> Iterator[Counter | Missing]:
    rails = [*hwmon_rails(root), *iio_rails(root)]
    if not rails:
        yield Missing("rail", f"{root / 'sys/class/hwmon'} has no power monitor ({', '.join(MONITORS)})")
        return
    names = [rail.name.removeprefix("rail.") for rail in rails]
    whole = [name for name in names if name in WHOLE_BOARD]
    for name, rail in zip(names, rails, strict=True):
        if isinstance(rail, Missing):
            yield rail
        else:
            yield Counter(rail.name, rail.kind, rail.read, total=name in whole[:1] if whole else True)


def hwmon_rails(root: Path) -> Iterator[Counter | Missing]:
    for monitor in folders(root, "sys/class/hwmon/hwmon*"):
        if optional_text(monitor / "name") not in MONITORS:
            continue
        for current in folders(monitor, "curr*_input"):
            channel = re.sub(r"\D", "", current.name)
            if optional_text(monitor / f"in{channel}_enable") == "0":
                continue
            label = optional_text(monitor / f"in{channel}_label") or optional_text(monitor / "label")
            power = monitor / f"power{channel}_input"
            read = (
                functools.partial(number_of, power, MICRO)
                if power.exists()
                else functools.partial(product, monitor / f"in{channel}_input", current)
            )
            yield readable(f"rail.{label or f'{monitor.name}.{channel}'}", "power", read)


def product(volts: Path, amperes: Path) -> float:
    """Watts, of millivolts and milliamperes.

    Raises:
        CounterError: one of them cannot be read.
    """
    return number_of(volts, MILLI) * number_of(amperes, MILLI)


def iio_rails(root: Path) -> Iterator[Counter | Missing]:
    """As releases before L4T 34 show them: rail_name_N beside in_powerN_input, in milliwatts."""
    for device in folders(root, "sys/bus/i2c/drivers/ina3221x/*/iio:device*"):
        for label in folders(device, "rail_name_*"):
            channel = label.name.rpartition("_")[2]
            name = optional_text(label) or channel
            yield readable(
                f"rail.{name}", "power", functools.partial(number_of, device / f"in_power{channel}_input", MILLI)
            )
