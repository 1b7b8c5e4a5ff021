"""Which keys an attention over a cache sees."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from edgeformer.exporter.ort_cpu.matching import ancestry
from edgeformer.exporter.ort_cpu.probing import Step, values_in
from edgeformer.runtime import names

FAR = 1 << 20  # a position that no window of interest reaches back from to the first
STEPS = (Step((0, 0, 0), 6, 9), Step((0, 3, 9), 4, 17), Step((5,), 1, 8), Step((40, 2), 3, 64))
HIDDEN = -1e30  # what a masked score gets at most, in masks that are added
FROM_LENGTHS = {names.CACHE_LENGTHS, names.POSITIONS}


@dataclasses.dataclass(frozen=True, slots=True)
class Causal:
    """A query sees the keys at or before its own position.

    Attributes:
        window: how many of them, its own among them; all where it is None.
        bias: what is added to the scores, (1 or batch, 1 or num_heads, q_len, capacity), where something is.
    """

    window: int | None = None
    bias: ir.Value | None = None


def causal(graph: ir.Graph, mask: ir.Value | None) -> Causal | None:
    """What a mask (batch, 1 or num_heads, q_len, capacity) lets an attention see; None if that is something else."""
    if mask is None or not ancestry(mask)[1] & FROM_LENGTHS:
        return None
    if mask.dtype == ir.DataType.BOOL:
        return boolean(graph, mask)
    return Causal(bias=mask) if all(hides_the_future(graph, mask, step) for step in STEPS) else None


def boolean(graph: ir.Graph, mask: ir.Value) -> Causal | None:
    far = values_in(graph, [mask], Step((FAR,), 1, FAR + 1))
    if far is None:
        return None
    seen = int(far[0].sum())
    window = None if seen > FAR else seen
    near = [Step((window - 1, window, window + 2), 3, window + 8)] if window else []
    expected = all(equals(graph, mask, step, window) for step in (*STEPS, *near))
    return Causal(window) if expected else None


def visible(step: Step, window: int | None) -> NDArray[np.bool_]:
    """What `edgeformer.models.attention.causal_mask` gives: (batch, 1, q_len, capacity)."""
    keys, queries = np.arange(step.capacity), step.positions[:, None, :, None]
    seen: NDArray[np.bool_] = keys <= queries
    return seen if window is None else seen & (keys > queries - window)


def equals(graph: ir.Graph, mask: ir.Value, step: Step, window: int | None) -> bool:
    found, expected = values_in(graph, [mask], step), visible(step, window)
    return found is not None and found[0].shape == expected.shape and bool((found[0] == expected).all())


def hides_the_future(graph: ir.Graph, mask: ir.Value, step: Step) -> bool:
    """Whether a mask that is added to the scores hides what comes after a query, and nothing else."""
    found, seen = values_in(graph, [mask], step), visible(step, None)
    if found is None or found[0].ndim != 4 or found[0].shape[2:] != seen.shape[2:]:
        return False
    try:
        shown, seen = np.broadcast_arrays(found[0] > HIDDEN, seen)
    except ValueError:  # of another batch
        return False
    return bool((shown == seen).all())
