"""Questions that the passes ask about a graph."""

from __future__ import annotations

import onnx_ir as ir


def producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that computes value, if it is an operator of this type with one output in use."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op_type else None


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer, or None for anything computed or given from outside."""
    return value.const_value if value is not None and value.is_initializer() else None


def ancestry(value: ir.Value) -> tuple[set[str], set[str]]:
    """Operator types and graph inputs that value is computed from."""
    operators: set[str] = set()
    inputs: set[str] = set()
    waiting, seen = [value], {value}
    while waiting:
        current = waiting.pop()
        node = current.producer()
        if node is None:
            if current.is_graph_input() and current.name:
                inputs.add(current.name)
            continue
        operators.add(node.op_type)
        for parent in node.inputs:
            if parent is not None and parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return operators, inputs


def graph_input(graph: ir.Graph, name: str) -> ir.Value:
    """The graph input called name.

    Raises:
        KeyError: there is none.
    """
    for value in graph.inputs:
        if value.name == name:
            return value
    raise KeyError(name)


def add_input(graph: ir.Graph, name: str, dtype: ir.DataType, shape: tuple[int | str, ...]) -> ir.Value:
    """The graph input called name, made if there is none."""
    for value in graph.inputs:
        if value.name == name:
            return value
    value = ir.val(name, dtype, ir.Shape(shape))
    graph.inputs.append(value)
    return value
