"""The plugin form's operators as standard ones: what can be computed where no plugin is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

from edgeformer.exporter.ort_cpu.matching import register, take_over
from edgeformer.exporter.tensorrt.attention_plugin import CACHED_ATTENTION, DOMAIN, SOURCE_ATTENTION

OPSET_VERSION = 24
CONSTANTS = {"zero": 0, "one": 1, "behind_batch": [1, 2, 3], "around_q_len": [0, 1, 3], "unit": [1]}


class StandardAttention(InPlacePass):
    """Ensures: CachedAttention is TensorScatter and Attention, SourceAttention is Attention, under masks of lengths."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [node for node in graph if node.domain == DOMAIN]
        for number, node in enumerate(found):
            expand = {CACHED_ATTENTION: cached, SOURCE_ATTENTION: source}[node.op_type]
            constants = {
                name: register(graph, f"standard.{number}.{name}", np.array(numbers, np.int64))
                for name, numbers in (CONSTANTS | {"window": window_of(node)}).items()
            }
            tape = ir.tape.Tape()
            outputs = expand(tape, node, constants)
            graph.insert_before(node, tape.nodes)
            for old, new in zip(node.outputs, outputs, strict=True):
                take_over(old, new)
        graph.remove(found, safe=True)
        model.opset_imports.pop(DOMAIN, None)
        model.opset_imports[""] = max(model.opset_imports[""], OPSET_VERSION if found else 0)
        return PassResult(model, modified=bool(found))


def window_of(node: ir.Node) -> int:
    """How many positions a query sees, 0 for all."""
    window = node.attributes.get("window")
    return window.as_int() if window is not None else 0


def given(node: ir.Node) -> list[ir.Value]:
    """The inputs, none of which is optional."""
    inputs = [value for value in node.inputs if value is not None]
    if len(inputs) != len(node.inputs):
        raise PreconditionError(f"{node.name}: an input is missing")
    return inputs


def count(tape: ir.tape.Tape, value: ir.Value, axis: int, constants: dict[str, ir.Value]) -> ir.Value:
    """0, 1, ... as long as an axis of value."""
    extent = tape.op("Squeeze", [tape.op("Shape", [value], {"start": axis, "end": axis + 1})])
    return tape.op("Range", [constants["zero"], extent, constants["one"]])


def attend(tape: ir.tape.Tape, node: ir.Node, key: ir.Value, value: ir.Value, mask: ir.Value) -> ir.Value:
    return tape.op("Attention", [node.inputs[0], key, value, mask], {"scale": node.attributes["scale"].as_float()})


def cached(tape: ir.tape.Tape, node: ir.Node, constants: dict[str, ir.Value]) -> list[ir.Value]:
    query, *new, past_key, past_value, lengths = given(node)
    start = tape.op("Cast", [lengths], {"to": ir.DataType.INT64})
    key, value = (
        tape.op("TensorScatter", [past, update, start], {"axis": -2, "mode": "linear"})
        for past, update in zip((past_key, past_value), new, strict=True)
    )
    # (batch, 1, q_len, 1) against (capacity,)
    at = tape.op("Unsqueeze", [start, constants["behind_batch"]])
    columns = tape.op("Unsqueeze", [count(tape, query, 2, constants), constants["around_q_len"]])
    keys, queries = count(tape, key, 2, constants), tape.op("Add", [at, columns])
    mask = tape.op("LessOrEqual", [keys, queries])
    if window_of(node):
        first = tape.op("Sub", [queries, constants["window"]])  # the last position that is too far behind
        mask = tape.op("And", [mask, tape.op("Greater", [keys, first])])
    return [attend(tape, node, key, value, mask), key, value]


def source(tape: ir.tape.Tape, node: ir.Node, constants: dict[str, ir.Value]) -> list[ir.Value]:
    query, key, value, lengths = given(node)
    end = tape.op("Unsqueeze", [tape.op("Cast", [lengths], {"to": ir.DataType.INT64}), constants["behind_batch"]])
    seen = tape.op("Less", [count(tape, key, 2, constants), end])  # (batch, 1, 1, source_len)
    # ONNX Runtime's Attention takes no mask that is broadcast over queries.
    queries = tape.op("Shape", [query], {"start": 2, "end": 3})
    shape = tape.op("Concat", [*[constants["unit"]] * 2, queries, constants["unit"]], {"axis": 0})
    return [attend(tape, node, key, value, tape.op("Expand", [seen, shape]))]
