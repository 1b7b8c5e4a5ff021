"""The machine that this runs on, read from files: no vendor library is imported, and nothing here fails."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
from pathlib import Path

from edgeformer.runtime.cores import usable_cores

# What speeds up inference, by the kernel's names for it.
INSTRUCTION_SETS = (
    "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_int8", "amx_bf16", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
COMMON_NAMES = {"asimd": "neon", "asimdhp": "neon fp16", "asimddp": "neon dot product"}


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """What a measurement depends on.

    Attributes:
        cores: that this process may use.
        memory_bytes: of the whole machine, None where it is not known.
        nvidia_driver: its version, None where there is none.
        gpus: NVIDIA's names of them.
        jetson: the board and its Linux for Tegra release, None elsewhere.
    """

    cpu: str
    architecture: str
    cores: int
    instruction_sets: tuple[str, ...]
    memory_bytes: int | None
    os: str
    kernel: str
    python: str
    nvidia_driver: str | None
    gpus: tuple[str, ...]
    jetson: str | None


def this_machine(root: Path = Path("/")) -> Machine:
    """Look at the machine; `root` is where its /proc and /etc are."""
    cpuinfo = read(root / "proc/cpuinfo")
    board = read(root / "proc/device-tree/model").rstrip("\0")
    flags = set(field(cpuinfo, "flags").split() or field(cpuinfo, "Features").split())
    memory = re.search(r"^MemTotal:\s*(\d+) kB", read(root / "proc/meminfo"), re.MULTILINE)
    release = re.search(r'^PRETTY_NAME="?([^"\n]*)', read(root / "etc/os-release"), re.MULTILINE)
    driver = re.search(r"Kernel Module.*?\s(\d+\.\d+[.\d]*)", read(root / "proc/driver/nvidia/version"))
    return Machine(
        cpu=field(cpuinfo, "model name") or board or platform.processor() or "unknown",
        architecture=platform.machine(),
        cores=usable_cores(),
        instruction_sets=tuple(COMMON_NAMES.get(name, name) for name in INSTRUCTION_SETS if name in flags),
        memory_bytes=int(memory[1]) * 1024 if memory else None,
        os=release[1] if release else platform.system(),
        kernel=platform.release(),
        python=platform.python_version(),
        nvidia_driver=driver[1] if driver else None,
        gpus=tuple(
            field(read(path), "Model") for path in list_files(root / "proc/driver/nvidia/gpus", "*/information")
        ),
        jetson=jetson(board, read(root / "etc/nv_tegra_release")),
    )


def read(path: Path) -> str:
    """The text of a file, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def list_files(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def field(text: str, name: str) -> str:
    """The value of the first `name : value` line, empty where there is none."""
    found = re.search(rf"^{re.escape(name)}\s*:[ \t]*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def jetson(board: str, release: str) -> str | None:
    linux = re.search(r"R(\d+) \(release\), REVISION: ([\d.]+)", release)
    if "jetson" not in board.lower() and linux is None:
        return None
    return f"{board or 'a Jetson'}, {f'L4T {linux[1]}.{linux[2]}' if linux else 'release unknown'}"


def all_cores() -> int:
    """Cores of the machine, whoever may use them."""
    return os.cpu_count() or 1


def status_bytes(name: str) -> int | None:
    """A size in /proc/self/status: VmRSS is what the process holds now, VmHWM the most that it held."""
    found = re.search(rf"^{name}:\s*(\d+) kB", read(Path("/proc/self/status")), re.MULTILINE)
    return int(found[1]) * 1024 if found else None
