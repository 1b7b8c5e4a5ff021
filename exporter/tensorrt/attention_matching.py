"""The attentions of a portable graph: over a cache that new tokens are written into, and over a source."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
from onnx_ir.passes import PreconditionError

from edgeformer.exporter.ort_cpu.attention import is_write
from edgeformer.exporter.ort_cpu.matching import ancestry, constant, producer
from edgeformer.runtime import names

Shape = tuple[int | str | None, ...]
OF_POSITIONS = {"Add", "Concat", "Expand", "Gather", "Range", "Reshape", "Shape", "Slice", "Squeeze", "Unsqueeze"}


@dataclasses.dataclass(frozen=True, slots=True)
class Attention:
    """An Attention node of 4-D inputs under one mask, which hides positions or is added to the scores.

    Attributes:
        writes: the TensorScatter nodes of its key and value cache; none where it attends to a source.
        window: of a mask that hides by the rows' lengths alone, how many positions of a cache a query sees, its own
            among them, 0 for all; None where the mask is another.
    """

    node: ir.Node
    query: ir.Value  # (batch, num_heads, q_len, head_dim)
    key: ir.Value  # (batch, num_kv_heads, capacity or source_len, head_dim)
    value: ir.Value
    mask: ir.Value  # bool or float (batch or 1, num_heads or 1, q_len, capacity or source_len)
    writes: tuple[ir.Node, ...]
    window: int | None

    @property
    def num_heads(self) -> int:
        return extent(self.query, 1)

    @property
    def num_kv_heads(self) -> int:
        return extent(self.key, 1)

    @property
    def group(self) -> int:
        """How many heads share their keys."""
        return self.num_heads // self.num_kv_heads

    @property
    def scale(self) -> float:
        """The factor of the scores."""
        given = self.node.attributes.get("scale")
        return given.as_float() if given is not None else float(extent(self.query, 3) ** -0.5)

    @property
    def adds_mask(self) -> bool:
        """Whether its mask is added to the scores, as T5's is."""
        return self.mask.dtype != ir.DataType.BOOL


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
            under `names.SOURCE_LENGTHS`, or that does more than softmax(scale Q K^T + mask) V. TensorRT drops some of
            what it does not know in silence, so nothing unknown may pass.
    """
    return [understood(node) for node in graph if node.op_type == "Attention"]


def understood(node: ir.Node) -> Attention:
    query, key, value, mask = (*node.inputs, *[None] * 4)[:4]
    if query is None or key is None or value is None or mask is None or not is_plain(node):
        raise PreconditionError(f"{node.name}: not a plain attention under a mask")
    if any(len(v.shape or ()) != 4 for v in (query, key, value)):
        raise PreconditionError(f"{node.name}: not an attention of 4-D inputs")
    writes = [write for cache in (key, value) if (write := producer(cache, "TensorScatter"))]
    lengths = names.CACHE_LENGTHS if writes else names.SOURCE_LENGTHS
    fits = len(writes) == 2 and all(map(is_write, writes)) and in_place(writes) if writes else True
    if not fits or lengths not in ancestry(mask)[1]:
        raise PreconditionError(f"{node.name}: neither a causal attention over a cache nor one over a source")
    return Attention(node, query, key, value, mask, tuple(writes), window_of(mask) if writes else whole_source(mask))


def is_plain(attention: ir.Node) -> bool:
    """Whether it does nothing but softmax(scale Q K^T + mask) V, and gives nothing else."""
    more = (attention.attributes.get(name) for name in ("softcap", "is_causal"))
    return (
        not any(attribute.value for attribute in more if attribute is not None)
        and all(value is None for value in attention.inputs[4:])
        and not any(list(value.uses()) for value in attention.outputs[1:])
    )


def in_place(writes: list[ir.Node]) -> bool:
    """Whether the caches are the graph's own inputs and outputs, so that TensorRT can bind both to one memory."""
    return all(
        write.inputs[0] is not None and write.inputs[0].is_graph_input() and write.outputs[0].is_graph_output()
        for write in writes
    )


def window_of(mask: ir.Value) -> int | None:
    """How many positions a mask over a cache lets a query see, 0 for all; None for a mask of another kind.

    LessOrEqual(keys, queries), or And(LessOrEqual(keys, queries), Greater(keys, queries - window)).
    """
    found = unexpanded(mask)
    if compares(found, "LessOrEqual", names.CACHE_LENGTHS):
        return 0
    both = producer(found, "And")
    if both is None:
        return None
    causal, near = sorted(both.inputs, key=lambda side: producer(side, "Greater") is not None)
    below = producer(near, "Greater")
    behind = producer(below.inputs[1], "Sub") if below is not None else None
    window = constant(behind.inputs[1]) if behind is not None else None
    if window is None or window.size != 1 or not compares(causal, "LessOrEqual", names.CACHE_LENGTHS):
        return None
    return int(window.numpy().item()) if compares(near, "Greater", names.CACHE_LENGTHS, "Sub") else None


def whole_source(mask: ir.Value) -> int | None:
    """0 for a mask that shows each row's source and nothing else."""
    return 0 if compares(unexpanded(mask), "Less", names.SOURCE_LENGTHS) else None


def unexpanded(mask: ir.Value | None) -> ir.Value | None:
    """The mask before it got the shape that an attention takes."""
    while mask is not None and (node := mask.producer()) is not None and node.op_type in ("Unsqueeze", "Expand"):
        mask = node.inputs[0]
    return mask


def compares(value: ir.Value | None, comparison: str, lengths: str, *more: str) -> bool:
    """Whether it is `position of a key (comparison) these lengths`, with operators of positions, and more, alone."""
    node = producer(value, comparison)
    if node is None:
        return False
    (key_operators, keys), (operators, limits) = (ancestry(side) for side in node.inputs)
    return (key_operators | operators) <= OF_POSITIONS | {*more} and lengths not in keys and lengths in limits
