"""Rotary positions: cosines and sines in tables, from which an attention can take them itself.

    positions -> Cast -> Mul(frequencies) -> Cos -> RotaryEmbedding
                                          '> Sin ----^

computes them in every step. They become inputs, tables of as many rows as the caller's caches are long, and what
computes them becomes a graph of its own, which the caller runs when its caches grow: no table has to be as long as all
positions of a model.

    positions -> Gather(cosines) -> RotaryEmbedding
              -> Gather(sines) --------^
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
from onnx_ir.convenience import extract

from edgeformer.exporter.ort_cpu.matching import ancestry, graph_input, has_input, producer, register
from edgeformer.exporter.ort_cpu.probing import evaluate
from edgeformer.runtime import names

RANGES = (1 << 17, 1 << 13, 1 << 9, 1 << 5)  # positions to try; a model may have a table that ends earlier

Pair = tuple[ir.Value, ir.Value]


@dataclasses.dataclass(frozen=True, slots=True)
class Rotation:
    """How an attention's queries and keys are turned.

    Attributes:
        query, key: before they are.
        cosines, sines: the tables, inputs of the graph.
        interleaved: whether pairs are neighbours.
    """

    query: ir.Value
    key: ir.Value
    cosines: ir.Value
    sines: ir.Value
    interleaved: bool


def take_out_rotations(model: ir.Model) -> ir.Model | None:
    """Let the tables be given.

    Requires: positions are an input. Ensures: what computes cosines and sines of each position by itself for a
    RotaryEmbedding is in the graph no more.

    Returns:
        positions int64 (1, rows) -> cosines.{i}, sines.{i}, (rows, half of a head each); None if nothing is turned.
    """
    graph = model.graph
    if not has_input(graph, names.POSITIONS):
        return None
    pairs = dict.fromkeys(pair for node in graph if (pair := pair_of(node)) is not None)
    found = [pair for pair in pairs if by_position(graph, pair)]
    if not found:
        return None
    tables = rotation_graph(model, found)
    positions = graph_input(graph, names.POSITIONS)
    for i, pair in enumerate(found):
        for name, value in zip(names.rotation_names(i), pair, strict=True):
            table = ir.val(name, value.dtype, ir.Shape(("rows", value.shape[-1] if value.shape else None)))
            graph.inputs.append(table)
            node = ir.node("Gather", [table, positions], {"axis": 0})
            node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
            graph.insert_before(graph[0], node)
            value.replace_all_uses_with(node.outputs[0])
    return tables


def pair_of(node: ir.Node) -> Pair | None:
    """The cosines and sines of an operator that turns whole heads by what it is given for each token."""
    if node.op_type != "RotaryEmbedding" or len(node.inputs) != 3:
        return None
    _, cosines, sines = node.inputs
    return (cosines, sines) if cosines is not None and sines is not None else None


def by_position(graph: ir.Graph, pair: Pair) -> bool:
    """Whether each position alone decides its cosines and sines, as it does not where all grow with the longest row."""
    if any(ancestry(value)[1] != {names.POSITIONS} for value in pair):
        return False
    positions, rng = graph_input(graph, names.POSITIONS), np.random.default_rng(0)
    for most in RANGES:
        some = rng.integers(0, most, (3, 5))
        together = evaluate(graph, [positions], pair, [some])
        if together is None:
            continue
        for at, position in np.ndenumerate(some):
            alone = evaluate(graph, [positions], pair, [np.array([[position]])])
            if alone is None or any(a.shape != (1, 1, t.shape[-1]) for a, t in zip(alone, together, strict=True)):
                return False
            if not all(np.allclose(a[0, 0], t[at], rtol=0, atol=1e-6) for a, t in zip(alone, together, strict=True)):
                return False
        return True
    return False


def rotation_graph(model: ir.Model, pairs: list[Pair]) -> ir.Model:
    values = [value for pair in pairs for value in pair]
    graph = extract(model.graph, [graph_input(model.graph, names.POSITIONS)], values)
    graph.inputs[0].shape = ir.Shape((1, "rows"))
    axis = register(graph, "first_axis", np.array([0]))
    called = [name for i in range(len(pairs)) for name in names.rotation_names(i)]
    for i, name in enumerate(called):
        node = ir.node("Squeeze", [graph.outputs[i], axis])
        node.outputs[0].name, node.outputs[0].type = name, graph.outputs[i].type
        shape = graph.outputs[i].shape
        node.outputs[0].shape = ir.Shape(("rows", shape[-1] if shape else None))
        graph.append(node)
        graph.outputs[i] = node.outputs[0]
    graph.name = "rotation"
    return ir.Model(graph, ir_version=model.ir_version)


def rotation_of(query: ir.Value, key: ir.Value) -> Rotation | None:
    """How a query and the key that it meets are turned, if both are, whole and by the same tables."""
    first, second = producer(query, "RotaryEmbedding"), producer(key, "RotaryEmbedding")
    if first is None or second is None or (pair := pair_of(first)) is None or pair != pair_of(second):
        return None
    before, before_key = first.inputs[0], second.inputs[0]
    cosines, sines = looked_up(pair[0]), looked_up(pair[1])
    interleaved, other = integer(first, "interleaved"), integer(second, "interleaved")
    partial = [integer(node, name) for node in (first, second) for name in ("rotary_embedding_dim", "num_heads")]
    if before is None or before_key is None or cosines is None or sines is None or interleaved != other or any(partial):
        return None
    return Rotation(before, before_key, cosines, sines, bool(interleaved))


def looked_up(value: ir.Value) -> ir.Value | None:
    """The table of the graph's inputs that a value is looked up in, by the positions."""
    node = producer(value, "Gather")
    if node is None or any(one is None or not one.is_graph_input() for one in node.inputs):
        return None
    table, at = node.inputs
    return table if at is not None and at.name == names.POSITIONS else None


def integer(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return attribute.as_int() if attribute is not None else 0
