"""One attention on the device: which kernels compute it, over which grid, from which addresses."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from edgeformer.runtime.plugins.kernels import CACHED, DECODE, FEW_ROWS, MERGE, PREFILL, SOURCE, SPLITS, Variant
from edgeformer.runtime.plugins.launching import Grid, Launcher

ITEM_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4}
FLOAT32 = 4
INPUTS = {
    CACHED: ("query_ptr", "key_ptr", "value_ptr", "past_key_ptr", "past_value_ptr", "lengths_ptr"),
    SOURCE: ("query_ptr", "past_key_ptr", "past_value_ptr", "lengths_ptr"),
}
OUTPUTS = {CACHED: ("out_ptr", "present_key_ptr", "present_value_ptr"), SOURCE: ("out_ptr",)}
STATS = 2  # of a split: the greatest score and the sum of weights


@dataclasses.dataclass(frozen=True, slots=True)
class Extents:
    """The sizes of one call that vary; `capacity` is that of the cache, or the source's padded length."""

    batch: int
    q_len: int
    capacity: int


def few_tokens(variant: Variant) -> int:
    """The most new tokens a row that the decode form serves: so few that one block could not keep the GPU busy."""
    return max(FEW_ROWS // variant.group, 1)


def workspace_bytes(variant: Variant, extents: Extents) -> int:
    """Bytes that the splits' results take, for these extents and any smaller ones."""
    q_len = min(extents.q_len, few_tokens(variant))
    rows = extents.batch * variant.num_heads * q_len
    return rows * SPLITS * (variant.head_dim + STATS) * FLOAT32


def attend(
    launcher: Launcher,
    variant: Variant,
    extents: Extents,
    inputs: Sequence[int],
    outputs: Sequence[int],
    workspace: int,
    stream: int,
) -> None:
    """Queue one attention; a cache that is not written in place is copied first.

    Args:
        inputs, outputs: addresses in the operator's order.
        workspace: address of `workspace_bytes` bytes.
        stream: the CUDA stream's handle.

    Raises:
        DeviceError: the driver refused, or no kernel fits this GPU.
    """
    if variant.operator == CACHED:
        size = extents.batch * variant.num_kv_heads * extents.capacity * variant.head_dim * ITEM_SIZES[variant.dtype]
        for past, present in zip(inputs[3:5], outputs[1:3], strict=True):
            if past != present and size:
                launcher.copy(present, past, size, stream)
    if not extents.batch * extents.q_len:
        return
    arguments = named_addresses(variant, inputs, outputs) | {"q_len": extents.q_len, "capacity": extents.capacity}
    split = extents.q_len <= few_tokens(variant)
    rows = extents.batch * variant.num_heads * extents.q_len
    if split:
        arguments["partial_ptr"] = workspace
        arguments["stats_ptr"] = workspace + rows * SPLITS * variant.head_dim * FLOAT32
    loaded = launcher.load(variant, DECODE if split else PREFILL)
    grid = grid_of(variant, extents, loaded.kernel.block_rows, loaded.kernel.splits)
    launcher.launch(loaded, grid, arguments, stream)
    if split:
        launcher.launch(launcher.load(variant, MERGE), (rows, 1, 1), arguments, stream)


def grid_of(variant: Variant, extents: Extents, block_rows: int, splits: int) -> Grid:
    """Tiles of rows, heads that hold keys in every row of the batch, splits."""
    return -(-extents.q_len * variant.group // block_rows), extents.batch * variant.num_kv_heads, splits


def named_addresses(variant: Variant, inputs: Sequence[int], outputs: Sequence[int]) -> dict[str, int]:
    """The kernel's pointers by name; a source's keys and values are read as a cache's."""
    named = dict(zip(INPUTS[variant.operator], inputs, strict=True))
    return named | dict(zip(OUTPUTS[variant.operator], outputs, strict=True))
