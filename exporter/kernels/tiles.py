"""How an attention is cut into tiles: block sizes, warps and pipeline stages of each form of its kernel.

Chosen so that nothing spills on sm_87 and sm_89 up to head_dim 128 (`benchmarks/kernel_resources.py`), never timed.
"""

from __future__ import annotations

import dataclasses

from edgeformer.runtime.plugins.kernels import DECODE, FEW_ROWS, PREFILL, SPLITS, Variant

TURING = "7.5"
LEAST_DIM = 16  # of a tensor core's product


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """Sizes of one form: rows and keys of a tile, splits of a cache, warps and pipeline stages of a block."""

    rows: int
    keys: int
    splits: int
    num_warps: int
    num_stages: int = 2


def block_dim(head_dim: int) -> int:
    """The power of two that a head is padded to."""
    return max(LEAST_DIM, 1 << (head_dim - 1).bit_length())


def tile_of(variant: Variant, form: str, compute_capability: str) -> Tile:
    """The tile of a form on a GPU.

    float32, whose products have no tensor cores, and Turing, whose registers a tile of 64 rows overflows, take few rows
    in every form.
    """
    wide, plain, turing = block_dim(variant.head_dim) > 64, variant.dtype == "float32", compute_capability == TURING
    if form == PREFILL and not plain and not turing:
        return Tile(rows=64, keys=32, splits=1, num_warps=8 if wide else 4)
    keys = 16 if wide and plain else 32 if wide or plain or turing else 64
    splits, stages = SPLITS if form == DECODE else 1, 1 if turing else 2
    return Tile(rows=FEW_ROWS, keys=keys, splits=splits, num_warps=4, num_stages=stages)
