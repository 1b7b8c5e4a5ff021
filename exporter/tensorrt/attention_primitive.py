"""Attention as the operators that compilers without an attention layer fuse.

    Attention(q, k, v, mask)             becomes   MatMul(Softmax(MatMul(q * scale, k^T) + additive mask), v)
    TensorScatter(past, new, lengths)    becomes   ScatterND(past, (row, head, position), new)

Nothing stands between those operators, casts neither: that is the pattern that TensorRT 10.3 fuses (from the vendor's
documentation; RTX 1.7 fuses it too, as its plans show), and the fused kernel computes the softmax in float32 of itself.
The additive mask is finite. -32768 has a weight of exactly 0 beside any score that a narrow type can hold next to it,
and a row of scores never becomes one of infinities, from which a softmax makes NaN.

Heads that share keys stand below one another, as more queries of one head: (batch, num_kv_heads, group * q_len,
head_dim), under the mask as often. That moves no memory, where repeating the keys would copy each cache in each step.

ScatterND copies: `present.*` are tensors of their own, and their memory must not be that of `past_key_values.*`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import graph_input, register, register_once, take_over
from edgeformer.exporter.tensorrt.attention_matching import Attention, attentions, extent
from edgeformer.exporter.tensorrt.finite_masks import HIDDEN
from edgeformer.runtime import names


class PrimitiveAttention(InPlacePass):
    """Requires: a typed graph. Ensures: no Attention and no TensorScatter is left."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = attentions(graph)
        masks: dict[tuple[ir.Value, int], ir.Value] = {}
        for attention in found:
            key = attention.mask, attention.num_kv_heads
            if key not in masks:
                masks[key] = stacked(graph, attention, additive(graph, attention))
            self.rewrite(graph, attention, masks[key])
        written = [write for attention in found for write in attention.writes]
        if written:
            at = places(graph, next(attention for attention in found if attention.writes))
            for write in written:
                new = ir.node("ScatterND", [write.inputs[0], at, write.inputs[1]], name=write.name)
                graph.insert_before(write, new)
                take_over(write.outputs[0], new.outputs[0])
        return PassResult(model, modified=bool(found))

    def rewrite(self, graph: ir.Graph, attention: Attention, mask: ir.Value) -> None:
        name, dtype = attention.node.name, attention.query.dtype
        assert dtype is not None
        tape = ir.tape.Tape()
        scale = register(graph, f"{name}.scale", np.asarray(attention.scale, dtype.numpy()))
        query = tape.op("Mul", [attention.query, scale])
        if attention.group > 1:
            query = tape.op("Reshape", [query, heads_of(graph, attention.num_kv_heads)])
        scores = tape.op("MatMul", [query, tape.op("Transpose", [attention.key], {"perm": (0, 1, 3, 2)})])
        weights = tape.op("Softmax", [tape.op("Add", [scores, mask])], {"axis": -1})
        context = tape.op("MatMul", [weights, attention.value])
        if attention.group > 1:
            context = tape.op("Reshape", [context, heads_of(graph, attention.num_heads)])
        for node in tape.nodes:
            node.outputs[0].dtype = dtype
        graph.insert_before(attention.node, tape.nodes)
        take_over(attention.node.outputs[0], context)


def additive(graph: ir.Graph, attention: Attention) -> ir.Value:
    """0 where a boolean mask allows, HIDDEN elsewhere; another is added as it is."""
    if attention.adds_mask:
        return attention.mask
    dtype = attention.query.dtype
    assert dtype is not None
    name = attention.mask.name
    seen, hidden = (
        register(graph, f"{name}.{kind}", np.asarray(number, dtype.numpy()))
        for kind, number in (("seen", 0.0), ("hidden", HIDDEN))
    )
    node = ir.node("Where", [attention.mask, seen, hidden], name=f"{name}.additive")
    node.outputs[0].dtype, node.outputs[0].shape = dtype, attention.mask.shape
    producer = attention.mask.producer()
    assert producer is not None
    graph.insert_after(producer, node)
    return node.outputs[0]


def stacked(graph: ir.Graph, attention: Attention, mask: ir.Value) -> ir.Value:
    """The mask of queries whose heads stand below one another: (batch or 1, num_kv_heads or 1, group * q_len, keys)."""
    if attention.group == 1:
        return mask
    if extent(mask, 1) == 1:
        node = ir.node("Concat", [mask] * attention.group, {"axis": 2}, name=f"{mask.name}.stacked")
    else:
        shape = heads_of(graph, attention.num_kv_heads)
        node = ir.node("Reshape", [mask, shape], name=f"{mask.name}.stacked")
    producer = mask.producer()
    assert mask.dtype is not None
    assert producer is not None
    node.outputs[0].dtype = mask.dtype
    graph.insert_after(producer, node)
    return node.outputs[0]


def heads_of(graph: ir.Graph, count: int) -> ir.Value:
    """The shape to which a Reshape brings heads and queries so that there are `count` heads."""
    return register_once(graph, f"heads.{count}", [0, count, -1, 0])


def places(graph: ir.Graph, attention: Attention) -> ir.Value:
    """int64 (batch, num_heads, q_len, 3): where in a cache each number of new keys goes, shared by all layers."""
    heads = attention.num_kv_heads
    constants = {
        name: register(graph, f"places.{name}", np.array(numbers, np.int64))
        for name, numbers in {
            "zero": 0, "one": 1, "single": [1], "heads": [heads], "head": np.arange(heads).reshape(1, heads, 1, 1),
            "behind_batch": [1, 2, 3], "around_q_len": [0, 1, 3],
        }.items()
    }  # fmt: skip
    tape = ir.tape.Tape()
    ids = graph_input(graph, names.INPUT_IDS)
    extents = {axis: tape.op("Shape", [ids], {"start": axis, "end": axis + 1}) for axis in (0, 1)}
    counts = [
        tape.op("Range", [constants["zero"], tape.op("Squeeze", [extent]), constants["one"]])
        for extent in extents.values()
    ]
    row = tape.op("Unsqueeze", [counts[0], constants["behind_batch"]])  # (batch, 1, 1, 1)
    start = tape.op("Unsqueeze", [graph_input(graph, names.CACHE_LENGTHS), constants["behind_batch"]])
    position = tape.op("Add", [start, tape.op("Unsqueeze", [counts[1], constants["around_q_len"]])])
    shape = tape.op("Concat", [extents[0], constants["heads"], extents[1], constants["single"]], {"axis": 0})
    parts = [tape.op("Expand", [part, shape]) for part in (row, constants["head"], position)]
    at = tape.op("Concat", parts, {"axis": -1})
    graph.insert_before(graph[0], tape.nodes)
    return at
