"""Which module of the model an ONNX node computes, as far as the names of its weights tell."""

from __future__ import annotations

import collections

import onnx

PREFIX = "model."  # of the modules that the exporter wraps around a model
PRODUCTS = ("MatMul", "Gemm")


class ModulePaths:
    """Looks up the module of a node by the weights that its first input was made with.

    Weights keep the paths that they have in the model (`decoder_layers.0.attention.query.bias`) as long as no pass
    computes new ones from them. Where the projection kept none, a weight before it still tells the layer.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.weights = {tensor.name for tensor in model.graph.initializer}
        self.producers = {name: node for node in model.graph.node for name in node.output}

    def of(self, tensor: str) -> str:
        """`decoder_layers.0.attention` for a tensor that its query projection made; empty where no weight tells."""
        waiting = collections.deque([(tensor, False)])
        seen = {tensor}
        while waiting:
            name, beyond = waiting.popleft()
            if name in self.weights and name.count(".") >= 2:
                return layer_of(name) if beyond else name.removeprefix(PREFIX).rsplit(".", 2)[0]
            node = self.producers.get(name)
            for index, source in enumerate(node.input if node is not None else ()):
                if source and source not in seen:
                    seen.add(source)
                    past = node is not None and node.op_type in PRODUCTS and index == 0
                    waiting.append((source, beyond or past))
        return ""


def layer_of(weight: str) -> str:
    """`decoder_layers.0` for `model.decoder_layers.0.norm.weight`; empty where no part is a number."""
    parts = weight.removeprefix(PREFIX).split(".")
    last = max((index for index, part in enumerate(parts) if part.isdigit()), default=-1)
    return ".".join(parts[: last + 1])
