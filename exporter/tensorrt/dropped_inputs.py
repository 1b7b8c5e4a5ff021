"""Inputs that a parser takes and drops without a word: TensorRT's does, with `nonpad_kv_seqlen` of Attention."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import onnx

from edgeformer.exporter.tensorrt.network_attentions import native_attentions
from edgeformer.exporter.tensorrt.network_tensors import inputs_of, layers_of, network_outputs, outputs_of

SHAPES_ONLY = ("Shape", "Size")  # what they give depends on no number in their input


def unused_inputs(model: onnx.ModelProto, trt: Any, network: Any) -> list[str]:
    """Inputs of a graph that nothing in the parsed network reads, and inputs of nodes that their results ignore.

    An input of a node is judged where it and all the node's results are tensors of the network by their ONNX names,
    and where it can't be folded: constants, and what only shapes are read from, may well be gone.

    Args:
        model: what was parsed; its weights need not be loaded.
        trt: `tensorrt` or `tensorrt_rtx`.
        network: the `INetworkDefinition` that the parser made of it, before anything was added.

    Returns:
        A sentence for each, such as "input lengths of the graph is read by nothing".
    """
    sources = read_from(trt, network)
    read = {name for names in sources.values() for name in names} | {t.name for t in network_outputs(network, {})}
    names = [network.get_input(index).name for index in range(network.num_inputs)]
    found = [f"input {name} of the graph is read by nothing" for name in names if name not in read]
    data = data_tensors(model)
    known = {*names, *sources}
    for node in model.graph.node:
        results = [name for name in node.output if name]
        if results and known.issuperset(results):
            judged = {name for name in node.input if name in data and name in known}
            reached = reach(results, judged, sources)
            found += [
                f"input {name} of {node.op_type} {node.name} is ignored"
                for name in node.input
                if name in judged - reached
            ]
    return found


def read_from(trt: Any, network: Any) -> dict[str, set[str]]:
    """Of each tensor that a layer makes, the tensors that this layer reads."""
    sources: dict[str, set[str]] = {}
    for layer in layers_of(network):
        inputs = {tensor.name for tensor in inputs_of(layer)}
        for output in outputs_of(layer):
            sources.setdefault(output.name, set()).update(inputs)
    for attention in native_attentions(trt, network):
        optional = [getattr(attention, name, None) for name in ("mask", "key_value_lengths", "query_lengths")]
        sources[attention.get_output(0).name] |= {tensor.name for tensor in optional if tensor is not None}
    return sources


def data_tensors(model: onnx.ModelProto) -> set[str]:
    """Tensors whose numbers depend on those of the graph's inputs, rather than on shapes and constants alone."""
    data = {value.name for value in model.graph.input}
    for node in model.graph.node:
        if node.op_type not in SHAPES_ONLY and not data.isdisjoint(node.input):
            data.update(node.output)
    return data


def reach(results: Collection[str], judged: Collection[str], sources: Mapping[str, Collection[str]]) -> set[str]:
    """Those of the judged tensors that the results are made from, without going beyond them."""
    waiting, seen, reached = [*results], set(results), set(results) & set(judged)
    while waiting:
        for name in sources.get(waiting.pop(), ()):
            if name in judged:
                reached.add(name)
            elif name not in seen:
                seen.add(name)
                waiting.append(name)
    return reached
