"""Module paths, from the names of weights."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from edgeformer.exporter.tensorrt.module_paths import ModulePaths


def projected(bias: str | None, norm: str) -> ModulePaths:
    """A norm, a product with a weight that a pass computed, perhaps a bias, and a transposition."""
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [1], [1.0]) for name in (norm, "val_90", *([bias] if bias else []))
    ]
    nodes = [
        helper.make_node("LayerNormalization", ["x", norm], ["normal"]),
        helper.make_node("MatMul", ["normal", "val_90"], ["product"]),
        helper.make_node("Add", ["product", bias], ["biased"])
        if bias
        else helper.make_node("Identity", ["product"], ["biased"]),
        helper.make_node("Transpose", ["biased"], ["query"]),
    ]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])], [], weights)
    return ModulePaths(helper.make_model(graph))


@pytest.mark.parametrize(
    ("bias", "module"),
    [
        ("model.decoder_layers.0.attention.query.bias", "decoder_layers.0.attention"),
        ("layers.3.self_attn.q_proj.bias", "layers.3.self_attn"),
        (None, "decoder_layers.0"),
    ],
)
def test_an_attention_is_named_after_the_projection_of_its_queries(bias: str | None, module: str) -> None:
    paths = projected(bias, "model.decoder_layers.0.attention_residual.norm.weight")
    assert paths.of("query") == module


def test_without_any_telling_weight_there_is_no_path() -> None:
    assert projected(None, "weight").of("query") == ""
    assert projected(None, "final.norm.weight").of("query") == ""
