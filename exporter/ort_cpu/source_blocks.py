"""An encoder for long sources: attention block by block of its queries, so that no scores of all with all are kept.

    query -> Pad -> Loop over blocks: Slice -> MultiHeadAttention, under a bias of these queries alone -> Transpose
          -> Reshape -> Slice

takes the place of each `MultiHeadAttention`. How long a block is the caller says. Short sources are read by the graph
without loops, which cost some tens of microseconds each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.ort_cpu.attention import MICROSOFT, SWAPPED
from edgeformer.exporter.ort_cpu.distance_bias import bias_by_distance
from edgeformer.exporter.ort_cpu.matching import add_input, graph_input, register, register_once, take_over
from edgeformer.exporter.ort_cpu.probing import Array
from edgeformer.exporter.ort_cpu.source_attention import as_int32
from edgeformer.exporter.ort_cpu.unused_inputs import UnusedInputs
from edgeformer.runtime import names
from edgeformer.runtime.errors import ParityError

BIAS = 5  # the input of MultiHeadAttention that is added to its scores, the last of those that count here
HIDDEN = -1e30  # what the scores of keys behind a source's end get
TRIED = (75, 40)  # tokens of the sources that both graphs read, and queries of a block
# Largest root mean square of the differences, as a share of that of the values: the same weights, in another order of
# sums, which in fewer bits may round activations otherwise.
TOLERANCE, TOLERANCE_IN_BITS = 1e-4, 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Bias:
    """What is added to scores by distance: (num_heads, 2 * far + 1)."""

    table: ir.Value
    far: int


@dataclasses.dataclass(frozen=True, slots=True)
class Attention:
    """An attention of a source's tokens, (batch, source_len, width), and what its loop is called."""

    node: ir.Node
    query: ir.Value
    key: ir.Value
    value: ir.Value
    width: int
    bias: Bias | None
    name: str


def in_blocks(encoder: ir.Model) -> ir.Model | None:
    """The graph of a rewritten encoder with attentions in blocks; None where none can be.

    An attention stays as it is where its mask is neither that of the sources' lengths nor a bias by distance.
    """
    model = encoder.clone()
    graph = model.graph
    biases: dict[ir.Value, Bias | None] = {}
    nodes = [node for node in graph if node.op_type == "MultiHeadAttention"]
    found = [a for i, node in enumerate(nodes) if (a := attention_of(graph, node, f"block.{i}", biases)) is not None]
    for attention in found:
        loop(graph, attention)
    RemoveUnusedNodesPass()(model)
    UnusedInputs()(model)
    return model if found else None


def attention_of(graph: ir.Graph, node: ir.Node, name: str, biases: dict[ir.Value, Bias | None]) -> Attention | None:
    """What a node is, if a loop can take its place; `biases` keeps what is known of masks."""
    inputs = [*node.inputs, *[None] * (BIAS + 1 - len(node.inputs))]
    query, key, value, projection, lengths, mask = inputs[: BIAS + 1]
    width = query.shape[2] if query is not None and query.shape is not None and len(query.shape) == 3 else None
    if query is None or key is None or value is None or projection is not None or not isinstance(width, int):
        return None
    if mask is None:  # without lengths it sees everything: the kernel itself works in blocks then
        return Attention(node, query, key, value, width, None, name) if lengths is not None else None
    if mask not in biases:
        found = bias_by_distance(graph, mask)
        biases[mask] = None if found is None else Bias(register(graph, f"{name}.bias", found), found.shape[1] // 2)
    bias = biases[mask]
    return None if bias is None else Attention(node, query, key, value, width, bias, name)


def loop(graph: ir.Graph, attention: Attention) -> None:
    """Let a loop over blocks of queries take an attention's place."""
    node, tape = attention.node, ir.tape.Tape()
    heads, width = node.attributes["num_heads"].as_int(), attention.width
    block = add_input(graph, names.QUERY_BLOCK, ir.DataType.INT64, (1,))
    zero, one = (register_once(graph, f"block.{n}", [n]) for n in (0, 1))
    length = tape.op("Shape", [attention.query], {"start": 1, "end": 2})
    # As many blocks as cover the source; what the last of them has too many is cut off in the end.
    count = tape.op("Div", [tape.op("Sub", [tape.op("Add", [length, block]), one]), block])
    missing = tape.op("Sub", [tape.op("Mul", [count, block]), length])
    padded = tape.op("Pad", [attention.query, tape.op("Concat", [zero, missing], {"axis": 0}), None, one])
    by_head = register_once(graph, f"block.heads.{heads}", [0, 0, heads, -1])
    key_value = [
        tape.op("Transpose", [tape.op("Reshape", [x, by_head])], {"perm": SWAPPED})
        for x in (attention.key, attention.value)
    ]
    body = body_of(graph, attention, padded, key_value, length)
    trips, go = tape.op("Squeeze", [count, zero]), register_once(graph, "block.go", True, "bool")
    blocks = tape.op("Loop", [trips, go], {"body": body})  # (count, batch, block, width)
    in_order = tape.op("Transpose", [blocks], {"perm": (1, 0, 2, 3)})
    merged = tape.op("Reshape", [in_order, register_once(graph, f"block.width.{width}", [0, -1, width])])
    whole = tape.op("Slice", [merged, zero, length, one])
    graph.insert_before(node, tape.nodes)
    take_over(node.outputs[0], whole)


def body_of(
    graph: ir.Graph, attention: Attention, padded: ir.Value, key_value: list[ir.Value], length: ir.Value
) -> ir.Graph:
    """One block's attention: (i, go on) -> (go on, (batch, block, width))."""
    i = ir.val(f"{attention.name}.i", ir.DataType.INT64, ir.Shape(()))
    go = ir.val(f"{attention.name}.go", ir.DataType.BOOL, ir.Shape(()))
    block, tape = graph_input(graph, names.QUERY_BLOCK), ir.tape.Tape()
    start = tape.op("Mul", [i, block])
    queries = tape.op("Slice", [padded, start, tape.op("Add", [start, block]), register_once(graph, "block.1", [1])])
    inputs = [queries, *key_value, None, as_int32(graph)]
    if attention.bias is not None:
        inputs.append(bias_of(graph, tape, attention.bias, start, length))
    attributes = {name: attribute.value for name, attribute in attention.node.attributes.items()}
    attributes["mask_filter_value"] = HIDDEN
    attended = tape.op("MultiHeadAttention", inputs, attributes, domain=MICROSOFT)
    onward = tape.op("Identity", [go])
    attended.type, onward.type = ir.TensorType(ir.DataType.FLOAT), ir.TensorType(ir.DataType.BOOL)
    for at, node in enumerate(tape.nodes):  # names that no value of the graph around has
        node.outputs[0].name = f"{attention.name}.{at}"
    return ir.Graph([i, go], [onward, attended], nodes=tape.nodes, name=attention.name)


def bias_of(graph: ir.Graph, tape: ir.tape.Tape, bias: Bias, start: ir.Value, length: ir.Value) -> ir.Value:
    """What is added to the scores of a block's queries, (1, num_heads, block, source_len)."""
    block = graph_input(graph, names.QUERY_BLOCK)
    first, second, least, most = (register_once(graph, f"block.{n}", [n]) for n in (0, 1, -bias.far, bias.far))
    zero, one = (register_once(graph, f"block.scalar.{n}", n) for n in (0, 1))
    queries, keys = (tape.op("Range", [zero, tape.op("Squeeze", [end, first]), one]) for end in (block, length))
    positions = tape.op("Unsqueeze", [tape.op("Add", [queries, start]), second])  # (block, 1)
    distances = tape.op("Sub", [keys, positions])  # (block, source_len)
    at = tape.op("Add", [tape.op("Max", [tape.op("Min", [distances, most]), least]), most])
    return tape.op("Unsqueeze", [tape.op("Gather", [bias.table, at], {"axis": 1}), first])


def require_same(folder: Path, vocab_size: int, precision: str) -> None:
    """Let both encoders of a folder read the same two sources, the shorter one padded.

    Raises:
        ParityError: they do not give the same.
    """
    (length, block), rng = TRIED, np.random.default_rng(0)
    ids, lengths = rng.integers(0, vocab_size, (2, length)), np.array([length, length - block // 2])
    given = {names.INPUT_IDS: ids, names.SOURCE_LENGTHS: lengths, names.QUERY_BLOCK: np.array([block])}
    expected, found = (outputs_of(folder / f"{role}.onnx", given) for role in ("encoder", names.LONG_ENCODER))
    worst = float(np.sqrt(np.mean(np.square(found - expected)) / np.mean(np.square(expected))))
    if not worst <= (TOLERANCE if precision == "fp32" else TOLERANCE_IN_BITS):
        raise ParityError(f"the encoder for long sources differs from the encoder by {worst:.1e} of its values")


def outputs_of(path: Path, given: Mapping[str, Array]) -> Array:
    """All that a graph gives for the first row, which has no padding, and for the second row's first token."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    zeros = np.zeros_like(given[names.INPUT_IDS])  # token types, and positions that are wanted
    outputs = session.run(None, {value.name: given.get(value.name, zeros) for value in session.get_inputs()})
    second = [output[1].take(0, axis=-2) if output.ndim > 2 else output[1] for output in outputs]
    return np.concatenate([part.ravel() for part in (*(output[0] for output in outputs), *second)])
