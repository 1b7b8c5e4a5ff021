"""A strongly typed graph: every value has the type that it is computed in, and casts stand where types meet.

    products, attention, caches, weights        the narrow type (float16 or bfloat16)
    a bias behind a product, activations        the type of what they read
    norms, the residual stream, all else        float32

The residual stream is float32 because sums over many layers leave float16's range before anything else does, and
because norms, which read it, are computed in float32 anyway: the compiler fuses the chain from one product to the next
into one kernel, and only (tokens, d_model) numbers pass through memory twice as wide.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import bias_after
from edgeformer.runtime.errors import TargetError

PRODUCTS = {"MatMul", "Gemm", "Attention", "TensorScatter", "DequantizeLinear"}
MOVES = {
    "Concat", "Expand", "Flatten", "Gather", "GatherND", "Identity", "Reshape", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze",
}  # fmt: skip
ACTIVATIONS = {"Erf", "Gelu", "Relu", "Sigmoid", "Tanh"}
WIDE = ir.DataType.FLOAT
KEPT = tuple(f"{prefix}." for prefix in ("present", "encoder_key_values"))  # outputs of the narrow type


class Typed(InPlacePass):
    """Requires: a float32 graph of standard operators. Ensures: inputs of every operator have one type.

    Raises (from within PassError):
        TargetError: a weight is beyond the narrow type's range.
    """

    def __init__(self, narrow: ir.DataType) -> None:
        super().__init__()
        self.narrow = narrow

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        if self.narrow == WIDE:
            return PassResult(model, modified=False)
        self.cast: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        for value in graph.inputs:
            if value.dtype == WIDE:
                value.type = ir.TensorType(self.narrow)
        for node in list(graph):
            self.type_node(graph, node)
        for i, output in enumerate(graph.outputs):
            name = output.name or ""
            wanted = self.narrow if name.startswith(KEPT) else WIDE
            if is_float(output) and output.dtype != wanted:
                graph.outputs[i] = new = self.as_type(graph, output, wanted)
                new.name, output.name = name, f"{name}.{output.dtype}"
        keep_names(graph)
        return PassResult(model, modified=True)

    def type_node(self, graph: ir.Graph, node: ir.Node) -> None:
        floats = [(i, value) for i, value in enumerate(node.inputs) if value is not None and is_float(value)]
        if not floats or node.op_type == "Shape":
            return
        wanted = self.wanted(node, [value for _, value in floats])
        for i, value in floats:
            if value.dtype != wanted:
                node.replace_input_with(i, self.as_type(graph, value, wanted))
        for output in node.outputs:
            if is_float(output):
                output.type = ir.TensorType(wanted)

    def wanted(self, node: ir.Node, floats: list[ir.Value]) -> ir.DataType:
        """The type in which a node computes."""
        if node.op_type in PRODUCTS:
            return self.narrow
        computed = {value.dtype for value in floats if not value.is_initializer()}
        follows = (
            node.op_type in MOVES | ACTIVATIONS
            or (node.op_type == "Add" and is_bias(node))
            or (node.op_type == "Mul" and not any(value.is_initializer() for value in floats))  # a gate
        )
        return self.narrow if follows and computed <= {self.narrow} else WIDE

    def as_type(self, graph: ir.Graph, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        """The value in another type: a converted weight, or one Cast behind its producer, shared by all who ask."""
        if (value, wanted) in self.cast:
            return self.cast[value, wanted]
        if value.is_initializer():
            new = converted(value, wanted)
            graph.register_initializer(new)
        else:
            cast = ir.node("Cast", [value], {"to": wanted})
            new, producer = cast.outputs[0], value.producer()
            if producer is None:
                graph.insert_before(graph[0], cast)
            else:
                graph.insert_after(producer, cast)
            new.type, new.shape = ir.TensorType(wanted), value.shape
        self.cast[value, wanted] = new
        return new


def is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def is_bias(add: ir.Node) -> bool:
    """Whether it adds a constant to a product."""
    kinds = [value.producer() for value in add.inputs if value is not None and not value.is_initializer()]
    return len(kinds) == 1 and kinds[0] is not None and kinds[0].op_type in ("MatMul", "Gemm")


def converted(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """A constant in another type.

    Raises:
        TargetError: a number is beyond its range.
    """
    tensor = value.const_value
    assert tensor is not None
    array = tensor.numpy()
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype.numpy())
    if (lost := np.isfinite(array) & ~np.isfinite(narrow)).any():
        most = np.abs(array[lost]).max()
        users = [node for node in value.consumers() if node.op_type == "MatMul"]
        name = label(users[0]) if users else value.name
        raise TargetError(f"weight {name} holds {most:g}, beyond what {dtype.name.lower()} can hold; use bf16 or fp32")
    name = f"{value.name}.{dtype.name.lower()}"
    return ir.val(name, const_value=ir.tensor(narrow, dtype=dtype, name=name))


def label(product: ir.Node) -> str:
    """The weight's name in PyTorch as its bias tells it; the exporter gives transposed weights a number."""
    add, weight = bias_after(product), product.inputs[1]
    bias = add.inputs[1] if add is not None else None
    # Equal biases are one constant by now, and tell nothing.
    if bias is not None and bias.name and bias.name.endswith(".bias") and len(list(bias.uses())) == 1:
        return bias.name.removesuffix("bias") + "weight"
    return (weight.name if weight is not None else None) or "a constant"


def keep_names(graph: ir.Graph) -> None:
    """Give converted weights the names of those that nothing reads any more."""
    for name, value in list(graph.initializers.items()):
        stem = name.rpartition(".")[0]
        original = graph.initializers.get(stem)
        if original is not None and not list(original.uses()):
            graph.initializers.pop(stem)
            graph.initializers.pop(name)
            value.name = stem
            graph.register_initializer(value)
