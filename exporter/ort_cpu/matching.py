"""Questions that the passes ask about a graph."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray


def producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that computes value, if it is an operator of this type with one output in use."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type == op_type else None


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer, or None for anything computed or given from outside."""
    return value.const_value if value is not None and value.is_initializer() else None


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """A MatMul of something with a constant matrix, and the Add of a constant vector behind it, if there is one."""

    node: ir.Node
    x: ir.Value
    name: str
    weight: NDArray[np.float32]  # (k, n)
    add: ir.Node | None
    bias: ir.Value | None  # (n,)

    @property
    def result(self) -> ir.Value:
        """What the rest of the graph reads: the sum where there is a bias."""
        return (self.add or self.node).outputs[0]


def products(graph: ir.Graph) -> list[Product]:
    """Every MatMul with a constant matrix, in the order of the graph."""
    found = []
    for node in graph:
        if node.op_type != "MatMul":
            continue
        x, value = node.inputs
        weight = constant(value)
        if x is None or value is None or value.name is None or weight is None or len(weight.shape) != 2:
            continue
        add = bias_after(node)
        found.append(Product(node, x, value.name, weight.numpy(), add, add.inputs[1] if add else None))
    return found


def bias_after(product: ir.Node) -> ir.Node | None:
    """The Add of a constant vector that alone uses the product."""
    users = list(product.outputs[0].consumers())
    if len(users) != 1 or users[0].op_type != "Add":
        return None
    weight, bias = constant(product.inputs[1]), constant(users[0].inputs[1])
    if weight is None or bias is None or tuple(bias.shape.numpy()) != tuple(weight.shape.numpy())[-1:]:
        return None
    return users[0]


def register(graph: ir.Graph, name: str, array: NDArray[np.generic]) -> ir.Value:
    """A new initializer."""
    value = ir.val(name, const_value=ir.tensor(array, name=name))
    graph.register_initializer(value)
    return value


def register_once(graph: ir.Graph, name: str, numbers: list[int] | int, dtype: str = "int64") -> ir.Value:
    """A small initializer that several nodes share, by its name."""
    known = graph.initializers.get(name)
    return known if known is not None else register(graph, name, np.array(numbers, dtype))


def ancestry(value: ir.Value | None) -> tuple[set[str], set[str]]:
    """Operator types and graph inputs that value is computed from."""
    operators: set[str] = set()
    inputs: set[str] = set()
    waiting = [value] if value is not None else []
    seen = set(waiting)
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


def has_input(graph: ir.Graph, name: str) -> bool:
    """Whether the graph has an input of this name."""
    return any(value.name == name for value in graph.inputs)


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


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Let everything that reads old read new, which also takes its name where it is an output of the graph."""
    new.type, new.shape = old.type, old.shape
    if old.is_graph_output():
        new.name, old.name = old.name, f"{old.name}.before"
    old.replace_all_uses_with(new, replace_graph_outputs=True)
