"""Compiled kernels on disk: a folder whose `kernels.json` says of each file what it computes and how to launch it.

kernels.json                          schema version, the compiler's version, and one record a kernel
CachedAttention-float16-...cubin      machine code for one GPU
CachedAttention-float16-...ptx        for GPUs that no machine code is there for: the driver compiles it
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgeformer.runtime.backends import older
from edgeformer.runtime.errors import BundleError

SCHEMA_VERSION = 1
INDEX = "kernels.json"
CACHED, SOURCE = "CachedAttention", "SourceAttention"
PREFILL, DECODE, MERGE, SHORT = "prefill", "decode", "merge", "short"
SPLITS = 8  # blocks that share one row's cache in the decode form
FEW_ROWS = 16  # rows of a tile in the decode and short forms: queries times the heads that share keys


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """What an attention's kernels are compiled for.

    Attributes:
        operator: CachedAttention or SourceAttention.
        dtype: float16, bfloat16 or float32.
        scale: factor of the scores.
        window: positions that a query sees, its own the last; 0 for all.
    """

    operator: str
    dtype: str
    head_dim: int
    num_heads: int
    num_kv_heads: int
    scale: float
    window: int = 0

    def __str__(self) -> str:
        heads = f"{self.num_heads} heads of {self.head_dim} over {self.num_kv_heads}"
        window = f", window {self.window}" if self.window else ""
        return f"{self.operator} ({self.dtype}, {heads}, scale {self.scale:.6g}{window})"

    @property
    def group(self) -> int:
        """Heads that share keys and values."""
        return self.num_heads // self.num_kv_heads

    def is_same(self, other: Variant) -> bool:
        """Whether both need the same kernel: scales pass through float32 on their way."""
        return dataclasses.replace(self, scale=other.scale) == other and math.isclose(
            self.scale, other.scale, rel_tol=1e-6
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled kernel.

    Attributes:
        form: prefill (tiles of queries), decode (few queries, the cache split), merge (of the splits) or short (few
            queries, unsplit).
        compute_capability: of the GPU it was compiled for, such as 8.7. Machine code runs on that one alone, PTX on it
            and on later ones.
        file: relative to the folder.
        entry: the kernel's name in it.
        arguments: name and type (pointer or int32) of every argument in the order of the launch, with the pointers
            that the compiler adds.
        shared: dynamic shared memory of a block in bytes.
        num_warps: warps of a block, of 32 threads each.
        block_rows: rows of a tile.
        splits: blocks that share one row's cache.
        registers: of a thread; 0 where it is not known.
        local: bytes of a thread's local memory, where registers spill to; 0 where there is none.
    """

    variant: Variant
    form: str
    compute_capability: str
    file: str
    entry: str
    arguments: tuple[tuple[str, str], ...]
    shared: int
    num_warps: int
    block_rows: int
    splits: int
    registers: int = 0
    local: int = 0

    @property
    def is_portable(self) -> bool:
        return self.file.endswith(".ptx")

    def runs_on(self, compute_capability: str) -> bool:
        if self.is_portable:
            return not older(compute_capability, self.compute_capability)
        return compute_capability == self.compute_capability


def write_index(folder: Path, kernels: Iterable[Kernel], versions: Mapping[str, str]) -> None:
    values = {
        "schema_version": SCHEMA_VERSION,
        "versions": dict(versions),
        "kernels": [dataclasses.asdict(kernel) for kernel in kernels],
    }
    (folder / INDEX).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def read_kernels(folder: Path) -> tuple[Kernel, ...]:
    """The kernels of a folder; their files are not looked at.

    Raises:
        BundleError: the index is missing, damaged, or newer than this edgeformer.
    """
    subject = f"kernels {folder}"
    try:
        values = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        version = values["schema_version"]
        if version != SCHEMA_VERSION:
            reason = f"{INDEX} has schema {version}, this edgeformer reads {SCHEMA_VERSION}: upgrade edgeformer"
            raise BundleError(subject, [reason])
        return tuple(map(parse_kernel, values["kernels"]))
    except OSError as error:
        raise BundleError(subject, [f"{INDEX} cannot be read: {error.strerror}"]) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(subject, [f"{INDEX} is damaged: {type(error).__name__}: {error}"]) from error


def parse_kernel(values: Mapping[str, Any]) -> Kernel:
    arguments = tuple((str(name), str(kind)) for name, kind in values["arguments"])
    if Path(values["file"]).name != values["file"]:
        raise ValueError(f"{values['file']} leads out of the folder")
    return Kernel(**{**values, "variant": Variant(**values["variant"]), "arguments": arguments})


def candidates(kernels: Iterable[Kernel], variant: Variant, form: str, compute_capability: str) -> list[Kernel]:
    """The kernels that compute this on that GPU: its own machine code first, then what the driver compiles."""
    found = [
        kernel for kernel in kernels
        if kernel.form == form and kernel.variant.is_same(variant) and kernel.runs_on(compute_capability)
    ]  # fmt: skip
    return sorted(found, key=lambda kernel: kernel.is_portable)
