"""Self-attention over the caches, as the operator that ONNX Runtime's CPU kernels do fastest.

    q -> Reshape -> Transpose [-> RotaryEmbedding] ------------------.
    k -> Reshape -> Transpose [-> RotaryEmbedding] -> TensorScatter --+-> Attention -> Transpose -> Reshape
    v -> Reshape -> Transpose ---------------------> TensorScatter --'      ^ causal mask

becomes one `GroupQueryAttention`, which writes the cache in place and stops at each row's length.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import (
    MICROSOFT,
    head_sizes,
    is_write,
    merged_by,
    score_scale,
    unusual,
    without_heads,
)
from edgeformer.exporter.ort_cpu.masks import Causal, causal
from edgeformer.exporter.ort_cpu.matching import add_input, producer, register_once, take_over
from edgeformer.exporter.ort_cpu.rotary import Rotation, rotation_of
from edgeformer.runtime import names

HEAD_STEP = 8  # GroupQueryAttention takes heads of a multiple of this width
ROTARY_HEAD_STEP = 16  # and of this one where it turns them


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """An attention over a cache, and all that GroupQueryAttention needs to know of it.

    Attributes:
        sources: query, key and value of the new tokens, (batch, heads, q_len, head_dim) each, before they are turned.
        writes: what writes key and value.
        rotation: how query and key are turned, where they are.
        attributes: the new operator's, of its heads and scores.
    """

    node: ir.Node
    sources: tuple[ir.Value, ir.Value, ir.Value]
    writes: tuple[ir.Node, ir.Node]
    causal: Causal
    rotation: Rotation | None
    attributes: dict[str, int | float]


class CachedAttention(InPlacePass):
    """Self-attention over the caches becomes GroupQueryAttention, wherever that computes the same.

    Requires: the step graph of `edgeformer.runtime.names`. Ensures: an attention that is left sees something else than
    a causal mask, or a window of it, lets it see, or has heads that the kernel does not take. With several new tokens
    in a row, the kernel takes empty caches only, or a batch of one.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        seen: dict[ir.Value | None, Causal | None] = {}
        found = [match for node in graph if (match := matched(graph, node, seen)) is not None]
        for match in found:
            rewrite(graph, match)
        if found:
            model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=bool(found))


def matched(graph: ir.Graph, node: ir.Node, seen: dict[ir.Value | None, Causal | None]) -> Match | None:
    """What a node is, if GroupQueryAttention can take its place; `seen` keeps what is known of masks."""
    if node.op_type != "Attention" or len(node.inputs) < 4:
        return None
    query, key, value, mask = node.inputs[:4]
    writes, attributes = written_for(node), scores(node)
    if query is None or key is None or value is None or writes is None or attributes is None:
        return None
    new_key, new_value = writes[0].inputs[1], writes[1].inputs[1]
    if new_key is None or new_value is None:
        return None
    if mask not in seen:
        seen[mask] = causal(graph, mask)
    if (sees := seen[mask]) is None:
        return None
    rotation = rotation_of(query, new_key)
    if rotation is not None and query.shape is not None and query.shape[-1] % ROTARY_HEAD_STEP == 0:
        query, new_key = rotation.query, rotation.key
    else:
        rotation = None
    return Match(node, (query, new_key, new_value), writes, sees, rotation, attributes)


def scores(node: ir.Node) -> dict[str, int | float] | None:
    """The new operator's attributes, of an attention's heads and scores; None where it does not take them."""
    heads, kv_heads, values, scale = *map(head_sizes, node.inputs[:3]), score_scale(node)
    if heads is None or kv_heads is None or kv_heads != values or scale is None:
        return None
    (num_heads, head_dim), (num_kv_heads, width) = heads, kv_heads
    if head_dim % HEAD_STEP or head_dim != width or num_heads % num_kv_heads:
        return None
    return {"num_heads": num_heads, "kv_num_heads": num_kv_heads, **unusual(scale, head_dim)}


def written_for(node: ir.Node) -> tuple[ir.Node, ir.Node] | None:
    """What writes an attention's key and value caches, if nothing else reads them."""
    key, value = written(node.inputs[1]), written(node.inputs[2])
    if key is None or value is None or key is value:
        return None
    alone = all(list(write.outputs[0].consumers()) == [node] for write in (key, value))
    return (key, value) if alone else None


def written(cache: ir.Value | None) -> ir.Node | None:
    """What writes new tokens behind each row's length into a cache of the graph's inputs, if that makes this value."""
    node = producer(cache, "TensorScatter")
    return node if is_write(node) else None


def rewrite(graph: ir.Graph, match: Match) -> None:
    node = match.node
    last = add_input(graph, names.LAST_POSITIONS, ir.DataType.INT32, ("batch",))
    total = add_input(graph, names.TOTAL_LENGTH, ir.DataType.INT32, (1,))
    sources = [without_heads(graph, value, node) for value in match.sources]
    inputs = [*sources, *(write.inputs[0] for write in match.writes), last, total]
    attributes = dict(match.attributes)
    if match.causal.window is not None:
        attributes["local_window_size"] = match.causal.window
    if match.rotation is not None:
        inputs += [match.rotation.cosines, match.rotation.sines]
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(match.rotation.interleaved)}
    if match.causal.bias is not None:
        inputs += [None] * (10 - len(inputs)) + [up_to(graph, match.causal.bias, total, node)]
    new = ir.node("GroupQueryAttention", inputs, attributes, domain=MICROSOFT, num_outputs=3, name=node.name)
    graph.insert_before(node, new)
    merged_by(graph, node, new.outputs[0])
    for write, written_cache in zip(match.writes, new.outputs[1:], strict=True):
        take_over(write.outputs[0], written_cache)


def up_to(graph: ir.Graph, bias: ir.Value, total: ir.Value, before: ir.Node) -> ir.Value:
    """The bias of the keys that there are, out of a cache's whole capacity."""
    known = next((n.outputs[0] for n in bias.consumers() if n.op_type == "Slice" and n.inputs[2] is total), None)
    if known is not None:
        return known
    start, axis = (register_once(graph, f"bias_{name}", [n], "int32") for name, n in (("start", 0), ("axis", 3)))
    tape = ir.tape.Tape()
    result = tape.op("Slice", [bias, start, total, axis])
    graph.insert_before(before, tape.nodes)
    return result
