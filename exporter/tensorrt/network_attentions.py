"""Every attention of a network, and whether it is fused: one kernel, or several."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx

from edgeformer.exporter.tensorrt.attention_plugin import CACHED_ATTENTION, SOURCE_ATTENTION
from edgeformer.exporter.tensorrt.module_paths import ModulePaths
from edgeformer.exporter.tensorrt.network_tensors import (
    SymbolicShapes,
    describe_tensor,
    inputs_of,
    layer_kind,
    layers_of,
    outputs_of,
    symbolic_shapes,
)
from edgeformer.exporter.tensorrt.report import Attention, Layer, Tensor

PART = re.compile(r"_myl(\d+)_")  # the compiler numbers the parts that it compiles: at least one for each profile
BETWEEN = ("Add", "Cast", "Clip", "Div", "Mul", "Sub", "Where")  # what stands between a product and a softmax


def find_attentions(trt: Any, network: Any, model: onnx.ModelProto, engine: Sequence[Layer]) -> tuple[Attention, ...]:
    """Attentions in the graph's order.

    Args:
        trt: `tensorrt` or `tensorrt_rtx`.
        network: what the parser made of `model`, built without an error.
        model: the ONNX graph; its weights are not read.
        engine: layers of the compiled engine; none where they are not known.
    """
    shapes, paths = symbolic_shapes(model), ModulePaths(model)
    tensors = {t.name: t for layer in layers_of(network) for t in (*inputs_of(layer), *outputs_of(layer))}
    natives = {attention.name: attention for attention in native_attentions(trt, network)}
    found = []
    for node in model.graph.node:
        if node.name in natives:
            found.append(native(trt, natives.pop(node.name), node.input, shapes, paths, engine))
        elif node.op_type in (CACHED_ATTENTION, SOURCE_ATTENTION):
            found.append(plugin(node, tensors, shapes, paths))
        elif node.op_type == "Softmax" and (products := products_around(node, model)):
            found.append(primitive(node, products, tensors, shapes, paths, engine))
    return (*found, *(native(trt, attention, (), shapes, paths, engine) for attention in natives.values()))


def native_attentions(trt: Any, network: Any) -> Iterator[Any]:
    """The `IAttention` objects of a network; none for a version that has no such layer."""
    for layer in layers_of(network):
        if layer_kind(layer) == "ATTENTION_OUTPUT":
            layer.__class__ = trt.IAttentionOutputLayer  # how the bindings turn an ILayer into what it is
            yield layer.attention


def native(
    trt: Any,
    attention: Any,
    names: Sequence[str],
    shapes: SymbolicShapes,
    paths: ModulePaths,
    engine: Sequence[Layer],
) -> Attention:
    """TensorRT's attention layer; `names` are the inputs of its ONNX node, none where it has no node."""
    query, key = (describe_tensor(attention.get_input(i), shapes, names[i] if names else None) for i in range(2))
    kernels = attention_kernels([attention.name], engine)
    fused, evidence = verdict(kernels, engine)
    if not fused and not attention.decomposable:
        fused, evidence = True, "TensorRT refuses to build it where it has no kernel of its own"
    return Attention(
        node=attention.name,
        module=paths.of(names[0]) if names else "",
        form="native",
        fused=fused,
        evidence=evidence,
        kernels=tuple(filter(None, kernels)),
        dtype=query.dtype,
        query=query.shape,
        key=key.shape,
        mask=describe_mask(trt, attention, shapes),
    )


def verdict(kernels: Sequence[str], engine: Sequence[Layer]) -> tuple[bool | None, str]:
    """Whether an attention is fused, as far as the compiled engine tells, and how that is known."""
    if not engine:
        return None, "the layers of the compiled engine are not known"
    if not kernels:
        return False, "the compiled engine has no attention kernel for it"
    if "" in kernels:
        return False, "the compiled engine has an attention kernel for some profiles only"
    return True, "the compiled engine has a kernel that does it all"


def describe_mask(trt: Any, attention: Any, shapes: SymbolicShapes) -> str:
    if attention.mask is not None:
        tensor = describe_tensor(attention.mask, shapes)
        kind = "boolean" if tensor.dtype == "bool" else "additive"
        form = f"{kind} ({', '.join(map(str, tensor.shape))})"
    else:
        form = causal_form(trt, attention)
    lengths = getattr(attention, "key_value_lengths", None)  # TensorRT 11
    return f"{form} and lengths" if lengths is not None else form


def causal_form(trt: Any, attention: Any) -> str:
    kind = getattr(attention, "causal_kind", None)  # TensorRT 11; before it, `causal` is upper-left
    if kind is not None:
        return "none" if kind == trt.CausalMaskKind.NONE else f"{kind.name.lower().replace('_', '-')} causal"
    return "upper-left causal" if attention.causal else "none"


def attention_kernels(nodes: Sequence[str], engine: Sequence[Layer]) -> tuple[str, ...]:
    """Attention kernels that the engine runs for these nodes, without their hashes and without repetitions.

    An empty name stands for a part of the engine, such as that of another profile, which computes these nodes without
    any attention kernel.
    """
    parts: dict[str, list[str]] = {}
    for layer in engine:
        if not set(nodes).isdisjoint(layer.nodes):
            part = PART.search(layer.name)
            name = layer.kernel.rpartition("_0x")[0] or layer.kernel or layer.name
            parts.setdefault(part[1] if part else "", []).extend([name] if "mha" in name.lower() else [])
    if not any(parts.values()):
        return ()
    return tuple(dict.fromkeys(name for names in parts.values() for name in names or [""]))


def plugin(node: onnx.NodeProto, tensors: Mapping[str, Any], shapes: SymbolicShapes, paths: ModulePaths) -> Attention:
    cached = node.op_type == CACHED_ATTENTION  # attends to the cache, which the new keys are written into
    query, key = (known_tensor(node.input[i], tensors, shapes) for i in (0, 3 if cached else 1))
    return Attention(
        node=node.name,
        module=paths.of(node.input[0]),
        form="plugin",
        fused=True,
        evidence="it is a plugin, with kernels of its own",
        kernels=(),
        dtype=query.dtype,
        query=query.shape,
        key=key.shape,
        mask="lower-right causal and lengths" if cached else "lengths",
    )


def primitive(
    softmax: onnx.NodeProto,
    products: tuple[onnx.NodeProto, onnx.NodeProto],
    tensors: Mapping[str, Any],
    shapes: SymbolicShapes,
    paths: ModulePaths,
    engine: Sequence[Layer],
) -> Attention:
    scores, context = products
    kernels = attention_kernels([scores.name, softmax.name, context.name], engine)
    fused, evidence = verdict(kernels, engine)
    # The queries are scaled and the keys transposed first: their shapes are those of the result and of the values.
    query, key = known_tensor(context.output[0], tensors, shapes), known_tensor(context.input[1], tensors, shapes)
    return Attention(
        node=softmax.name,
        module=paths.of(scores.input[0]),
        form="primitive",
        fused=fused,
        evidence=evidence,
        kernels=tuple(filter(None, kernels)),
        dtype=query.dtype,
        query=query.shape,
        key=key.shape,
        mask="in the scores",
    )


def known_tensor(name: str, tensors: Mapping[str, Any], shapes: SymbolicShapes) -> Tensor:
    if name in tensors:
        return describe_tensor(tensors[name], shapes)
    return Tensor(name, "?", shapes.get(name, ()))


def products_around(softmax: onnx.NodeProto, model: onnx.ModelProto) -> tuple[onnx.NodeProto, onnx.NodeProto] | None:
    """The matrix products before and after a softmax, where there is nothing but elementwise operators between."""
    producers = {name: node for node in model.graph.node for name in node.output}
    before, after = producers.get(softmax.input[0]), reader(softmax.output[0], model)
    while before is not None and before.op_type in BETWEEN:
        sources = (producers.get(name) for name in before.input)
        before = next((node for node in sources if node is not None and node.op_type in (*BETWEEN, "MatMul")), None)
    while after is not None and after.op_type in BETWEEN:
        after = reader(after.output[0], model)
    if before is None or after is None or (before.op_type, after.op_type) != ("MatMul", "MatMul"):
        return None
    return before, after


def reader(name: str, model: onnx.ModelProto) -> onnx.NodeProto | None:
    return next((node for node in model.graph.node if name in node.input), None)
