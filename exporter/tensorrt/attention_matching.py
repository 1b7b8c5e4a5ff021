"""The attentions of a portable graph: over a cache that new tokens are written into, and over a source."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
from onnx_ir.passes import PreconditionError

from edgeformer.exporter.ort_cpu.attention import is_mask_of, is_plain, is_write
from edgeformer.exporter.ort_cpu.matching import producer
from edgeformer.runtime import names

Shape = tuple[int | str | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Attention:
    """An Attention node of 4-D inputs under one boolean mask.

    Attributes:
        writes: the TensorScatter nodes of its key and value cache; none where it attends to a source.
    """

    node: ir.Node
    query: ir.Value  # (batch, num_heads, q_len, head_dim)
    key: ir.Value  # (batch, num_kv_heads, capacity or source_len, head_dim)
    value: ir.Value
    mask: ir.Value  # bool (batch, 1, q_len, capacity or source_len)
    writes: tuple[ir.Node, ...]

    @property
    def num_heads(self) -> int:
        return extent(self.query, 1)

    @property
    def num_kv_heads(self) -> int:
        return extent(self.key, 1)

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        given = self.node.attributes.get("scale")
        return given.as_float() if given is not None else float(extent(self.query, 3) ** -0.5)


def extent(value: ir.Value, axis: int) -> int:
    """A static extent.

    Raises:
        PreconditionError: it is symbolic or not known.
    """
    found = value.shape[axis] if value.shape is not None else None
    if not isinstance(found, int):
        raise PreconditionError(f"axis {axis} of {value.name} is {found}, expected a number")
    return found


def attentions(graph: ir.Graph) -> list[Attention]:
    """Every attention of the graph.

    Raises:
        PreconditionError: one that is not over a cache under the lengths of `names.CACHE_LENGTHS`, nor over a source
            under `names.SOURCE_LENGTHS`, or that does more than softmax(scale Q K^T) V under its mask. TensorRT drops
            some of what it does not know in silence, so nothing unknown may pass.
    """
    return [understood(node) for node in graph if node.op_type == "Attention"]


def understood(node: ir.Node) -> Attention:
    query, key, value, mask = (*node.inputs, *[None] * 4)[:4]
    if query is None or key is None or value is None or mask is None or not is_plain(node):
        raise PreconditionError(f"{node.name}: not a plain attention under a mask")
    if mask.dtype != ir.DataType.BOOL or any(len(v.shape or ()) != 4 for v in (query, key, value)):
        raise PreconditionError(f"{node.name}: not an attention of 4-D inputs under a boolean mask")
    writes = [write for cache in (key, value) if (write := producer(cache, "TensorScatter"))]
    if writes:
        fits = len(writes) == 2 and all(map(is_write, writes)) and in_place(writes)
        fits = fits and is_mask_of(mask, "LessOrEqual", names.CACHE_LENGTHS)
    else:
        fits = is_mask_of(mask, "Less", names.SOURCE_LENGTHS)
    if not fits:
        raise PreconditionError(f"{node.name}: neither a causal attention over a cache nor one over a source")
    return Attention(node, query, key, value, mask, tuple(writes))


def in_place(writes: list[ir.Node]) -> bool:
    """Whether the caches are the graph's own inputs and outputs, so that TensorRT can bind both to one memory."""
    return all(
        write.inputs[0] is not None and write.inputs[0].is_graph_input() and write.outputs[0].is_graph_output()
        for write in writes
    )
