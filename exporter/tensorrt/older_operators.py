"""Rotary positions and RMS norms as the operators that a parser before TensorRT 10.15 knows.

    RotaryEmbedding(x, cos, sin)     becomes     Concat(x1 cos - x2 sin, x2 cos + x1 sin), x1 and x2 the halves of x
    RMSNormalization(x, weight)      becomes     x / Sqrt(ReduceMean(x x) + epsilon) weight

The halves are those of each head, or its even and its odd numbers where pairs are interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

from edgeformer.exporter.ort_cpu.matching import register, take_over
from edgeformer.exporter.tensorrt.attention_matching import extent


class OlderOperators(InPlacePass):
    """Requires: a typed graph. Ensures: no RotaryEmbedding and no RMSNormalization is left."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        rewritten = {"RotaryEmbedding": rotated, "RMSNormalization": normalized}
        found = [node for node in graph if node.op_type in rewritten]
        for node in found:
            tape = ir.tape.Tape()
            result = rewritten[node.op_type](graph, tape, node)
            for made in tape.nodes:
                for value in made.outputs:
                    value.type = node.outputs[0].type
            graph.insert_before(node, tape.nodes)
            take_over(node.outputs[0], result)
        graph.remove(found, safe=True)
        return PassResult(model, modified=bool(found))


def constant(graph: ir.Graph, node: ir.Node, name: str, numbers: int | Sequence[int]) -> ir.Value:
    return register(graph, f"{node.name}.{name}", np.array(numbers, np.int64))


def rotated(graph: ir.Graph, tape: ir.tape.Tape, node: ir.Node) -> ir.Value:
    query, cosines, sines = node.inputs[:3]
    part, interleaved = (node.attributes.get(name) for name in ("rotary_embedding_dim", "interleaved"))
    whole = part is None or part.as_int() == 0
    if query is None or len(query.shape or ()) != 4 or any(value is not None for value in node.inputs[3:]) or not whole:
        raise PreconditionError(f"{node.name}: not a rotation of whole heads by given cosines and sines")
    heads_axis, width = constant(graph, node, "heads_axis", [1]), extent(query, 3)
    cos, sin = (tape.op("Unsqueeze", [table, heads_axis]) for table in (cosines, sines))  # (batch, 1, q_len, width / 2)
    pairs = interleaved is not None and interleaved.as_int() == 1
    apart = constant(graph, node, "apart", [0, 0, 0, width // 2, 2] if pairs else [0, 0, 0, 2, width // 2])
    # Numbers that are turned together stand apart on one axis of length 2: the last one where they were neighbours.
    axis = 4 if pairs else 3
    at, merged = constant(graph, node, "axis", [axis]), constant(graph, node, "merged", [0, 0, 0, width])
    halves = tape.op_multi_out(
        "Split", [tape.op("Reshape", [query, apart])], {"axis": axis, "num_outputs": 2}, num_outputs=2
    )
    first, second = (tape.op("Squeeze", [half, at]) for half in halves)
    turned = [
        tape.op("Sub", [tape.op("Mul", [first, cos]), tape.op("Mul", [second, sin])]),
        tape.op("Add", [tape.op("Mul", [second, cos]), tape.op("Mul", [first, sin])]),
    ]
    together = tape.op("Concat", [tape.op("Unsqueeze", [half, at]) for half in turned], {"axis": axis})
    return tape.op("Reshape", [together, merged])


def normalized(graph: ir.Graph, tape: ir.tape.Tape, node: ir.Node) -> ir.Value:
    x, weight = node.inputs[:2]
    axis, given = node.attributes.get("axis"), node.attributes.get("epsilon")
    if x is None or weight is None or (axis is not None and axis.as_int() not in (-1, len(x.shape or ()) - 1)):
        raise PreconditionError(f"{node.name}: not a norm over the last axis")
    epsilon = register(graph, f"{node.name}.epsilon", np.array(given.as_float() if given else 1e-5, np.float32))
    last = constant(graph, node, "last_axis", [-1])
    mean = tape.op("ReduceMean", [tape.op("Mul", [x, x]), last], {"keepdims": 1})
    return tape.op("Mul", [tape.op("Div", [x, tape.op("Sqrt", [tape.op("Add", [mean, epsilon])])]), weight])
