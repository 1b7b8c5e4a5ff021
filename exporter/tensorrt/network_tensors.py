"""What a parsed network holds, as the report's records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
import onnx.shape_inference
import onnx_ir as ir

from edgeformer.exporter.tensorrt.engine_layers import dtype_name
from edgeformer.exporter.tensorrt.report import CacheUpdate, Layer, Shape, Tensor

SymbolicShapes = Mapping[str, Shape]


def symbolic_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """Shapes of every tensor whose shape is stated or follows: a number, a name, or `?`, for each dimension."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = (*graph.value_info, *graph.output, *graph.input)
    return {value.name: tuple(map(told_dim, value.type.tensor_type.shape.dim)) for value in values}


def told_dim(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    if dim.HasField("dim_value"):
        return dim.dim_value
    named = dim.dim_param and not dim.dim_param.startswith("unk__")  # what inference calls a dimension it can't tell
    return dim.dim_param if named else "?"


def layers_of(network: Any) -> Iterator[Any]:
    return (network.get_layer(index) for index in range(network.num_layers))


def inputs_of(layer: Any) -> list[Any]:
    """The inputs of a layer (or an attention) that are given: optional ones may be absent."""
    given = (layer.get_input(index) for index in range(layer.num_inputs))
    return [tensor for tensor in given if tensor is not None]


def outputs_of(layer: Any) -> list[Any]:
    return [layer.get_output(index) for index in range(layer.num_outputs)]


def layer_kind(layer: Any) -> str:
    return str(layer.type).rpartition(".")[2]


def describe_tensor(tensor: Any, shapes: SymbolicShapes, like: str | None = None) -> Tensor:
    """A tensor with its dynamic dimensions named as those of the ONNX tensor of its name, or of `like`."""
    known = shapes.get(like or tensor.name, ())
    dims = dims_of(tensor)
    names = known if len(known) == len(dims) else ("?",) * len(dims)
    shape = tuple(dim if dim >= 0 else str(name) for dim, name in zip(dims, names, strict=True))
    return Tensor(tensor.name, dtype_name(str(tensor.dtype)), shape)


def dims_of(tensor: Any) -> tuple[int, ...]:
    """Dimensions, -1 where one is dynamic; none where the number of them is unknown."""
    try:
        return tuple(tensor.shape)
    except ValueError:  # "__len__() should return >= 0"
        return ()


def network_inputs(network: Any, shapes: SymbolicShapes) -> tuple[Tensor, ...]:
    return tuple(describe_tensor(network.get_input(index), shapes) for index in range(network.num_inputs))


def network_outputs(network: Any, shapes: SymbolicShapes) -> tuple[Tensor, ...]:
    return tuple(describe_tensor(network.get_output(index), shapes) for index in range(network.num_outputs))


def network_layers(network: Any, shapes: SymbolicShapes) -> tuple[Layer, ...]:
    return tuple(describe_layer(layer, shapes) for layer in layers_of(network))


def describe_layer(layer: Any, shapes: SymbolicShapes) -> Layer:
    inputs, outputs = (
        tuple(describe_tensor(tensor, shapes) for tensor in tensors)
        for tensors in (inputs_of(layer), outputs_of(layer))
    )
    return Layer(layer.name, layer_kind(layer), "", outputs[0].dtype if outputs else "", inputs, outputs)


def cache_updates(network: Any, shapes: SymbolicShapes) -> tuple[CacheUpdate, ...]:
    """Caches that are written in place by TensorRT's own layer."""
    return tuple(
        CacheUpdate(layer.name, cache.name, layer.get_output(0).name, cache.dtype, cache.shape)
        for layer in layers_of(network)
        if layer_kind(layer) == "KV_CACHE_UPDATE"
        for cache in [describe_tensor(layer.get_input(0), shapes)]
    )


def weight_bytes(model: onnx.ModelProto) -> dict[str, int]:
    """Bytes of constants by their type, the largest first; what their tensors hold is not read."""
    constants = [*model.graph.initializer]
    constants += [
        a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute if a.name == "value"
    ]
    total: dict[str, int] = {}
    for tensor in constants:
        name, bits = element(tensor.data_type)
        total[name] = total.get(name, 0) + (math.prod(tensor.dims) * bits + 7) // 8
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def element(data_type: int) -> tuple[str, int]:
    """Name and bits of an ONNX element type: ("float16", 16)."""
    dtype = ir.DataType(data_type)
    return dtype_name(dtype.name), round(dtype.itemsize * 8)
