"""What a kernel takes of a multiprocessor: read from its machine code, and how many of its blocks fit."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import tempfile
from pathlib import Path

from edgeformer.runtime.errors import BuildError


@dataclasses.dataclass(frozen=True, slots=True)
class Resources:
    """Registers of a thread, bytes of its local memory (where registers spill to), bytes of static shared memory."""

    registers: int
    local: int
    static_shared: int


@dataclasses.dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Limits of one streaming multiprocessor (CUDA C++ Programming Guide, table of compute capabilities)."""

    warps: int
    blocks: int
    shared: int  # bytes for blocks, of which the system takes 1 KiB for each


REGISTERS, WARP, REGISTER_UNIT = 65536, 32, 256  # registers are handed out to warps in units of 256
SYSTEM_SHARED = 1024
MULTIPROCESSORS = {
    "7.5": Multiprocessor(32, 16, 64 * 1024),
    "8.0": Multiprocessor(64, 32, 164 * 1024),
    "8.6": Multiprocessor(48, 16, 100 * 1024),
    "8.7": Multiprocessor(48, 16, 164 * 1024),
    "8.9": Multiprocessor(48, 24, 100 * 1024),
    "9.0": Multiprocessor(64, 32, 228 * 1024),
    "10.0": Multiprocessor(64, 32, 228 * 1024),
    "10.3": Multiprocessor(64, 32, 228 * 1024),
    "11.0": Multiprocessor(48, 24, 228 * 1024),
    "12.0": Multiprocessor(48, 24, 100 * 1024),
    "12.1": Multiprocessor(48, 24, 100 * 1024),
}


def read_resources(cubin: bytes) -> Resources:
    """Resources of the one kernel in a cubin, as cuobjdump, which comes with Triton, reads them.

    Raises:
        BuildError: it says something that is not understood.
    """
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        told = subprocess.run([knobs.nvidia.cuobjdump.path, "-res-usage", path], capture_output=True, text=True)
    found = [re.search(rf"\b{name}:(\d+)", told.stdout) for name in ("REG", "STACK", "SHARED")]
    if told.returncode or None in found:
        raise BuildError(f"cuobjdump does not tell a kernel's registers: {(told.stderr or told.stdout).strip()[:200]}")
    registers, local, shared = (int(match[1]) for match in found if match)
    return Resources(registers, local, shared)


def blocks_that_fit(compute_capability: str, num_warps: int, shared: int, registers: int) -> int:
    """Blocks that one multiprocessor holds at once, by registers, shared memory and warps."""
    limits = MULTIPROCESSORS[compute_capability]
    unit = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    return min(
        limits.blocks,
        limits.warps // num_warps,
        REGISTERS // (unit * num_warps),
        limits.shared // (shared + SYSTEM_SHARED),
    )


def occupancy(compute_capability: str, num_warps: int, shared: int, registers: int) -> float:
    """Share of a multiprocessor's warps that its blocks fill, an estimate from its limits."""
    blocks = blocks_that_fit(compute_capability, num_warps, shared, registers)
    return blocks * num_warps / MULTIPROCESSORS[compute_capability].warps
