"""Attention over a source, as the operator that ONNX Runtime's CPU kernels do fastest.

    q -> Reshape -> Transpose --.
    key, value -----------------+-> Attention -> Transpose -> Reshape
                                      ^ source mask

becomes one `MultiHeadAttention`, which takes the source lengths themselves as its mask. A mask that is added to the
scores, as one with a bias by distance is, stays what it is.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import (
    MICROSOFT,
    head_sizes,
    merged_by,
    score_scale,
    unusual,
    without_heads,
)
from edgeformer.exporter.ort_cpu.matching import add_input, ancestry, graph_input, producer
from edgeformer.exporter.ort_cpu.probing import values_for
from edgeformer.runtime import names

LENGTHS, LONGEST, Q_LEN = (7, 1, 4), 7, 3


class SourceAttention(InPlacePass):
    """Attention over a source becomes MultiHeadAttention, wherever that computes the same.

    Requires: an encoder or step graph of `edgeformer.runtime.names`. Ensures: in a step graph, each source may serve
    several consecutive rows (the beams of one source), if no attention over a source is left: their queries attend side
    by side, so that the encoder's keys and values are not repeated.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        known: dict[ir.Value | None, bool] = {}
        modified = False
        for node in list(graph):
            if node.op_type != "Attention" or len(node.inputs) < 4:
                continue
            mask = node.inputs[3]
            if mask not in known:
                known[mask] = is_source_mask(graph, mask)
            modified |= rewrite(graph, node, known[mask])
        if modified:
            model.opset_imports[MICROSOFT] = 1
            count_rows(graph)
        return PassResult(model, modified=modified)


def count_rows(graph: ir.Graph) -> None:
    """Ask the tokens how many rows there are, and nothing of the sources, which may be fewer."""
    ids = graph_input(graph, names.INPUT_IDS)
    for node in graph:
        given = node.inputs[0] if node.op_type == "Shape" else None
        if given is None or not given.is_graph_input():
            continue
        axes = [node.attributes[name].as_int() if name in node.attributes else None for name in ("start", "end")]
        if axes == [0, 1]:
            node.replace_input_with(0, ids)


def is_source_mask(graph: ir.Graph, mask: ir.Value | None) -> bool:
    """Whether a mask (batch, 1, q_len, source_len) shows what stands before each source's end."""
    if mask is None or mask.dtype != ir.DataType.BOOL or names.SOURCE_LENGTHS not in ancestry(mask)[1]:
        return False
    lengths, extents = np.array(LENGTHS), {"batch": len(LENGTHS), "source_len": LONGEST, "q_len": Q_LEN}
    found = values_for(graph, [mask], extents, {names.SOURCE_LENGTHS: lengths})
    expected = (np.arange(LONGEST) < lengths[:, None])[:, None, None]  # (batch, 1, 1, source_len)
    return (
        found is not None
        and found[0].ndim == 4
        and found[0].shape[1] == 1
        and found[0].shape[2] in (LONGEST, Q_LEN)
        and bool((found[0] == expected).all())
    )


def rewrite(graph: ir.Graph, node: ir.Node, under_lengths: bool) -> bool:
    """Whether MultiHeadAttention took a node's place."""
    query, key, value, mask = node.inputs[:4]
    sizes, scale = head_sizes(query), score_scale(node)
    if query is None or key is None or value is None or mask is None or sizes is None or scale is None:
        return False
    if head_sizes(key) != sizes or head_sizes(value) != sizes:
        return False
    attributes = {"num_heads": sizes[0], **unusual(scale, sizes[1])}
    given = key.is_graph_input() and value.is_graph_input()
    over_cache = producer(key, "TensorScatter") is not None
    if not under_lengths and (given or over_cache or mask.dtype != query.dtype):
        return False
    tape = ir.tape.Tape()
    x = without_heads(graph, query, node)
    if given:
        by_source = add_input(graph, names.SOURCE_SHAPE, ir.DataType.INT64, (3,))
        by_row = add_input(graph, names.ROW_SHAPE, ir.DataType.INT64, (3,))
        x = tape.op("Reshape", [x, by_source])
        attended = tape.op("MultiHeadAttention", [x, key, value, None, as_int32(graph)], attributes, domain=MICROSOFT)
        result = tape.op("Reshape", [attended, by_row])
    else:
        inputs = [x, without_heads(graph, key, node), without_heads(graph, value, node)]
        masked = [None, as_int32(graph)] if under_lengths else [None, None, mask]
        result = tape.op("MultiHeadAttention", [*inputs, *masked], attributes, domain=MICROSOFT)
    graph.insert_before(node, tape.nodes)
    merged_by(graph, node, result)
    return True


def as_int32(graph: ir.Graph) -> ir.Value:
    """The source lengths as the kernel takes them, computed once."""
    lengths = graph_input(graph, names.SOURCE_LENGTHS)
    known = (node.outputs[0] for node in lengths.consumers() if node.op_type == "Cast")
    for value in known:
        if value.dtype == ir.DataType.INT32:
            return value
    node = ir.node("Cast", [lengths], {"to": ir.DataType.INT32})
    node.outputs[0].dtype, node.outputs[0].shape = ir.DataType.INT32, lengths.shape
    graph.insert_before(graph[0], node)
    return node.outputs[0]
