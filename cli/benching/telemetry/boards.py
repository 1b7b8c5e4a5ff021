"""What a Jetson is and how it is set: releases, power mode, whether its clocks are held at their highest."""

from __future__ import annotations

import re
from pathlib import Path

from edgeformer.cli.benching.telemetry.counters import NOT_SUPPORTED, folders, optional_number, optional_text
from edgeformer.cli.benching.telemetry.jetson import gpu_clocks, is_jetson

# JetPack's first number by that of Linux for Tegra, where the package that says it exactly is not installed.
JETPACK_OF = {35: "5", 36: "6", 38: "7", 39: "7"}


def facts(root: Path) -> dict[str, str]:
    """Of a Jetson; of anything else, nothing."""
    if not is_jetson(root):
        return {}
    return {
        "board": optional_text(root / "proc/device-tree/model") or NOT_SUPPORTED,
        "l4t": l4t(root) or NOT_SUPPORTED,
        "jetpack": jetpack(root) or NOT_SUPPORTED,
        "power_mode": power_mode(root) or NOT_SUPPORTED,
        "jetson_clocks": clocks_held(root),
        "memory": "shared by CPU and GPU",
    }


def l4t(root: Path) -> str | None:
    """The release of Linux for Tegra, such as 36.4.3."""
    release = optional_text(root / "etc/nv_tegra_release") or ""
    found = re.search(r"R(\d+) \(release\), REVISION: ([\d.]+)", release)
    return f"{found[1]}.{found[2]}" if found else None


def jetpack(root: Path) -> str | None:
    """As its package says, else the first number that belongs to the release of Linux for Tegra."""
    status = optional_text(root / "var/lib/dpkg/status") or ""
    for paragraph in status.split("\n\n"):
        if re.search(r"^Package: nvidia-jetpack$", paragraph, re.MULTILINE):
            version = re.search(r"^Version: (\S+)$", paragraph, re.MULTILINE)
            return version[1] if version else None
    release = l4t(root)
    return JETPACK_OF.get(int(release.split(".")[0])) if release else None


def power_mode(root: Path) -> str | None:
    """The name and number of nvpmodel's mode, such as 15W (0)."""
    state = re.search(r"pmode:(\d+)", optional_text(root / "var/lib/nvpmodel/status") or "")
    if state is None:
        return None
    number = int(state[1])
    modes = optional_text(root / "etc/nvpmodel.conf") or ""
    for identifier, name in re.findall(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>", modes):
        if int(identifier) == number:
            return f"{name} ({number})"
    return str(number)


def clocks_held(root: Path) -> str:
    """Whether the clocks of CPU and GPU can't move, as `jetson_clocks` leaves them: on, off, or not supported."""
    cores = [
        (optional_number(folder / "scaling_min_freq"), optional_number(folder / "scaling_max_freq"))
        for folder in folders(root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq")
    ]
    gpus = [(optional_number(device / "min_freq"), optional_number(device / "max_freq")) for device in gpu_clocks(root)]
    ranges = cores + gpus
    if not cores or not gpus or any(None in span for span in ranges):
        return NOT_SUPPORTED
    return "on" if all(least == most for least, most in ranges) else "off"
