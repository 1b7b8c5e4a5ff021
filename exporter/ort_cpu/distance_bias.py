"""A bias of scores by distance: what is added where a key stands so far from its query, found out by computing it."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgeformer.exporter.ort_cpu.masks import HIDDEN
from edgeformer.exporter.ort_cpu.matching import ancestry
from edgeformer.exporter.ort_cpu.probing import Array, values_for
from edgeformer.runtime import names

MOST_NUMBERS, MOST_LENGTH = 1 << 24, 1024  # of the matrix that is looked at, and its rows and columns
BEYOND = 32  # distances behind the last that differs, which must all be alike
LENGTHS = (9, 1, 4)


def bias_by_distance(graph: ir.Graph, mask: ir.Value) -> Array | None:
    """What a mask (1 or batch, num_heads, source_len, source_len) adds to the scores of tokens that there are.

    Returns:
        float32 (num_heads, 2 * far + 1): by the key's position less the query's, from -far to far, which is what all
        that are farther apart get as well. None where something else decides, or hides other keys than those behind a
        source's end.
    """
    heads = mask.shape[1] if mask.shape is not None and len(mask.shape) == 4 else None
    if mask.dtype != ir.DataType.FLOAT or not isinstance(heads, int):
        return None
    if ancestry(mask)[1] - {names.SOURCE_LENGTHS, names.INPUT_IDS}:
        return None
    length = min(MOST_LENGTH, math.isqrt(MOST_NUMBERS // heads))
    whole = masked(graph, mask, (length,))
    if whole is None or whole.shape != (1, heads, length, length):
        return None
    by_distance = np.concatenate([whole[0, :, :0:-1, 0], whole[0, :, 0]], axis=1)  # from -(length - 1) to length - 1
    far = farthest(by_distance, length - 1)
    if far > length - 1 - BEYOND:
        return None
    table = by_distance[:, length - 1 - far : length + far]
    return table if all(is_added(graph, mask, table, lengths) for lengths in ((length,), LENGTHS)) else None


def masked(graph: ir.Graph, mask: ir.Value, lengths: tuple[int, ...]) -> Array | None:
    """The mask of a batch of sources."""
    given = {names.SOURCE_LENGTHS: np.array(lengths, np.int64)}
    found = values_for(graph, [mask], {"batch": len(lengths), "source_len": max(lengths)}, given)
    return None if found is None else found[0]


def farthest(by_distance: Array, at_zero: int) -> int:
    """The distance from which on, to either side, nothing changes any more."""
    before = np.any(by_distance[:, :at_zero] != by_distance[:, :1], axis=0)
    after = np.any(by_distance[:, at_zero + 1 :] != by_distance[:, -1:], axis=0)
    last_before = at_zero - int(np.argmax(before)) if before.any() else 0
    last_after = int(np.flatnonzero(after)[-1]) + 1 if after.any() else 0
    return max(last_before, last_after) + 1


def is_added(graph: ir.Graph, mask: ir.Value, table: Array, lengths: tuple[int, ...]) -> bool:
    """Whether a mask adds what the table says, and hides what is behind each source's end."""
    found, far = masked(graph, mask, lengths), table.shape[1] // 2
    at = np.arange(max(lengths))
    expected = table[:, np.clip(at - at[:, None], -far, far) + far]  # (num_heads, source_len, source_len)
    exists = (at < np.array(lengths)[:, None])[:, None, None]  # (batch, 1, 1, source_len)
    if found is None or found.shape[1:] != expected.shape or len(found) not in (1, len(lengths)):
        return False
    return bool(np.where(exists, found == expected, found <= HIDDEN).all())
