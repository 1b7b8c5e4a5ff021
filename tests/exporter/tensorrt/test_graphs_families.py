"""What families have that the paper's model has not: windows, masks that are added, shared keys, rotary positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir.passes import PreconditionError
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.onnx_graphs import export_graphs, sizes_of
from edgeformer.exporter.ort_cpu.matching import register
from edgeformer.exporter.tensorrt.attention_primitive import PrimitiveAttention
from edgeformer.exporter.tensorrt.finite_masks import HIDDEN
from edgeformer.exporter.tensorrt.graphs import OPSET_VERSION, rewrite
from edgeformer.exporter.tensorrt.older_operators import OlderOperators
from edgeformer.exporter.tensorrt.standard_attention import StandardAttention
from edgeformer.models.configs.keys import Keys
from edgeformer.models.families import FAMILIES, config_class, model_class
from edgeformer.runtime import names

from ..graphs import Arrays, close, encoder_inputs, only, run, step_inputs
from .typed_graphs import evaluate

SIZES: dict[str, Any] = {
    "vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "intermediate_size": 40, "max_position_embeddings": 64, "eos_token_id": 2,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": SIZES,
    "mistral": {**SIZES, "sliding_window": 3},
    "t5": {"vocab_size": 31, "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 3},
}
GraphOf = Callable[..., ir.Model]


@pytest.fixture(scope="module")
def exported() -> Callable[[str], tuple[names.Sizes, dict[str, ir.Model]]]:
    made: dict[str, tuple[names.Sizes, dict[str, ir.Model]]] = {}

    def get(name: str) -> tuple[names.Sizes, dict[str, ir.Model]]:
        if name not in made:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                family = FAMILIES[name]
                model = model_class(family)(config_class(family).from_keys(Keys(CONFIGS[name]))).eval()
            made[name] = sizes_of(model), export_graphs(model)
        return made[name]

    return get


@pytest.fixture
def graph_of(exported: Callable[[str], tuple[names.Sizes, dict[str, ir.Model]]]) -> GraphOf:
    """A family's graph; rewritten where a form of attention is named."""

    def get(name: str, attention: str | None = None, role: str = "decoder", dtype: str = "float32") -> ir.Model:
        model = exported(name)[1][role].clone()
        if attention is not None:
            form: Any = attention
            rewrite(model, role, dtype=dtype, weights=None, attention=form, capacity=None)  # type: ignore[arg-type]
        return model

    return get


@pytest.fixture
def given(exported: Callable[[str], tuple[names.Sizes, dict[str, ir.Model]]]) -> Callable[[str], Arrays]:
    def get(name: str) -> Arrays:
        return step_inputs(exported(name)[0], batch=3, source_len=5, q_len=4, capacity=12, wanted=2)

    return get


def logits(model: ir.Model, inputs: Arrays) -> Arrays:
    return {names.LOGITS: run(model, inputs)[names.LOGITS]}


@pytest.mark.parametrize("name", CONFIGS)
def test_native_graphs_compute_what_the_portable_ones_do(
    graph_of: GraphOf, given: Callable[[str], Arrays], name: str
) -> None:
    close(logits(graph_of(name, "native"), given(name)), logits(graph_of(name), given(name)))


def test_our_own_attention_knows_windows_and_shared_keys(graph_of: GraphOf, given: Callable[[str], Arrays]) -> None:
    model = graph_of("mistral", "plugin")
    nodes = only(model, "CachedAttention")
    attributes = ("window", "num_heads", "num_kv_heads")
    assert [tuple(node.attributes[name].value for name in attributes) for node in nodes] == [(3, 4, 2)] * 2
    StandardAttention()(model)
    close(logits(model, given("mistral")), logits(graph_of("mistral"), given("mistral")))
    assert [node.attributes["window"].value for node in only(graph_of("qwen3", "plugin"), "CachedAttention")] == [0, 0]


def test_masks_that_are_added_are_finite_in_half_precision(graph_of: GraphOf, given: Callable[[str], Arrays]) -> None:
    """The least float32, which hides positions in T5's mask, would be minus infinity there."""
    model = graph_of("t5", "native", dtype="float16")
    added = [node.inputs[3] for node in only(model, "Attention") if node.inputs[3].dtype != ir.DataType.BOOL]
    assert [mask.dtype for mask in added] == [ir.DataType.FLOAT16] * 2
    assert len(set(added)) == 1, "all layers share one"
    model.graph.outputs.append(added[0])
    found = evaluate(model, given("t5"), "float16")
    mask = found[added[0].name]
    assert mask.shape == (3, 3, 4, 12)
    assert mask.min() == HIDDEN
    expected = logits(graph_of("t5"), given("t5"))[names.LOGITS]
    np.testing.assert_allclose(found[names.LOGITS], expected, rtol=0, atol=0.05 * np.abs(expected).max())


def test_the_primitive_form_adds_masks_as_they_are(graph_of: GraphOf, given: Callable[[str], Arrays]) -> None:
    model = graph_of("t5", "primitive")
    assert not only(model, "Attention")
    close(logits(model, given("t5")), logits(graph_of("t5"), given("t5")))
    encoder, inputs = graph_of("t5", "primitive", "encoder"), encoder_inputs(3, 6, 31)
    found, expected = run(encoder, inputs), run(graph_of("t5", role="encoder"), inputs)
    close(found, expected)


@pytest.mark.parametrize("name", ["qwen3", "mistral"])
def test_the_primitive_form_puts_heads_that_share_keys_below_one_another(
    graph_of: GraphOf, given: Callable[[str], Arrays], name: str
) -> None:
    model = graph_of(name, "primitive")
    close(logits(model, given(name)), logits(graph_of(name), given(name)))
    assert not {"Tile", "Expand"} & {node.op_type for value in caches(model) for node in value.consumers()}
    assert len(only(model, "Where")) == 1, "one mask for all layers"


def caches(model: ir.Model) -> list[ir.Value]:
    return [value for value in model.graph.outputs if value.name != names.LOGITS]


def test_a_mask_of_each_head_goes_with_its_head(graph_of: GraphOf, given: Callable[[str], Arrays]) -> None:
    portable = graph_of("qwen3")
    bias = np.random.default_rng(1).normal(size=(1, 4, 1, 1)).repeat(12, 3).astype(np.float32)
    bias += np.arange(48, dtype=np.float32).reshape(1, 4, 1, 12) / 10
    bias_of_heads = register(portable.graph, "bias", bias)
    hidden = register(portable.graph, "hidden", np.float32(HIDDEN))
    for attention in only(portable, "Attention"):
        where = ir.node("Where", [attention.inputs[3], bias_of_heads, hidden])
        where.outputs[0].dtype, where.outputs[0].shape = ir.DataType.FLOAT, ir.Shape(["batch", 4, "q_len", 12])
        portable.graph.insert_before(attention, where)
        attention.replace_input_with(3, where.outputs[0])
    rewritten = portable.clone()
    PrimitiveAttention()(rewritten)
    RemoveUnusedNodesPass()(rewritten)
    assert not only(rewritten, "Attention")
    close(logits(rewritten, given("qwen3")), logits(portable, given("qwen3")))


def test_our_own_attention_refuses_masks_that_are_added(graph_of: GraphOf) -> None:
    with pytest.raises(PreconditionError, match="added to the scores, which our own kernels do not take: choose the"):
        graph_of("t5", "plugin")


def test_norms_and_rotations_are_computed_in_float32(graph_of: GraphOf) -> None:
    model = graph_of("qwen3", "native", dtype="bfloat16")
    for operator, count in (("RMSNormalization", 9), ("RotaryEmbedding", 4), ("Cos", 1), ("Sin", 1)):
        nodes = only(model, operator)
        assert len(nodes) == count
        assert {value.dtype for node in nodes for value in node.inputs} == {ir.DataType.FLOAT}
    for operator in ("Attention", "TensorScatter"):
        narrow = {node.inputs[i].dtype for node in only(model, operator) for i in (0, 1)}
        assert narrow == {ir.DataType.BFLOAT16}


@pytest.mark.parametrize(("name", "form"), [("qwen3", "plugin"), ("t5", "primitive")])
def test_older_versions_get_operators_that_they_know(
    graph_of: GraphOf, given: Callable[[str], Arrays], name: str, form: str
) -> None:
    model = graph_of(name, form)
    assert model.opset_imports[""] == OPSET_VERSION
    assert not {"RotaryEmbedding", "RMSNormalization"} & {node.op_type for node in model.graph}
    StandardAttention()(model)
    close(logits(model, given(name)), logits(graph_of(name), given(name)))


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotations_are_those_of_the_operator(interleaved: int) -> None:
    shapes = {"x": (2, 3, 4, 6), "cos": (2, 4, 3), "sin": (2, 4, 3)}
    values = {name: ir.val(name, ir.DataType.FLOAT, ir.Shape(shape)) for name, shape in shapes.items()}
    node = ir.node("RotaryEmbedding", list(values.values()), {"interleaved": interleaved}, name="turn")
    node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = "y", ir.DataType.FLOAT, values["x"].shape
    graph = ir.Graph(list(values.values()), node.outputs, nodes=[node], opset_imports={"": 23})
    model, rng = ir.Model(graph, ir_version=10), np.random.default_rng(0)
    inputs = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    expected = evaluate(model, inputs)
    OlderOperators()(model)
    assert not only(model, "RotaryEmbedding")
    close(evaluate(model, inputs), expected, 1e-6)
