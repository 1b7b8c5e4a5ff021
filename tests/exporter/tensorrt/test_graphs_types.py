"""Types and weights: what is computed in float32, what is stored in fewer bits, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from edgeformer.exporter.ort_cpu.matching import ancestry
from edgeformer.exporter.tensorrt.typed import Typed
from edgeformer.exporter.tensorrt.weight_only import WeightOnly, quantize
from edgeformer.runtime import names
from edgeformer.runtime.errors import TargetError

from ..graphs import only, read
from .typed_graphs import check, evaluate, typed

F16, F32 = ir.DataType.FLOAT16, ir.DataType.FLOAT


def product(weight: NDArray[np.float32]) -> ir.Model:
    """y = x weight."""
    x, w = ir.val("x", F32, ir.Shape(["batch", weight.shape[0]])), ir.val("w", const_value=ir.tensor(weight, name="w"))
    node = ir.node("MatMul", [x, w], name="product")
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(F32)
    node.outputs[0].shape = ir.Shape(["batch", weight.shape[1]])
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 21})
    return ir.Model(graph, ir_version=10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_are_narrow_and_norms_sums_and_logits_are_float32(tiny_bundle: Path, dtype: str) -> None:
    model = typed(tiny_bundle, "decoder", dtype=dtype)
    narrow = ir.DataType[dtype.upper()]
    for op_type, wanted in (("MatMul", narrow), ("Attention", narrow), ("Relu", narrow), ("LayerNormalization", F32)):
        nodes = only(model, op_type)
        assert nodes
        floats = [v for node in nodes for v in node.inputs if v is not None and v.dtype != ir.DataType.BOOL]
        assert {value.dtype for value in floats} == {wanted}, op_type
    residual = [add for add in only(model, "Add") if not any(v.is_initializer() for v in add.inputs)]
    assert {add.inputs[0].dtype for add in residual if add.inputs[0].dtype != ir.DataType.INT64} == {F32}
    assert {value.name: value.dtype for value in model.graph.outputs}[names.LOGITS] == F32


def test_types_are_the_only_difference_in_weights_and_their_names_stay(tiny_bundle: Path) -> None:
    before = read(tiny_bundle, "decoder").graph.initializers
    after = typed(tiny_bundle, "decoder").graph.initializers
    kept = [name for name in after if name.startswith("model.") and after[name].dtype == F16]
    assert len(kept) == 18  # embedding, positions, and the biases of two layers
    for name in kept:
        np.testing.assert_array_equal(
            after[name].const_value.numpy(), before[name].const_value.numpy().astype(np.float16), err_msg=name
        )


def test_a_value_that_many_read_is_cast_once(tiny_bundle: Path) -> None:
    casts = [node.inputs[0] for node in only(typed(tiny_bundle, "encoder"), "Cast")]
    assert len(casts) == len(set(casts))


def test_a_weight_beyond_float16_is_named_and_bfloat16_takes_it() -> None:
    weight = np.ones((4, 4), np.float32)
    weight[2, 1] = -1e5
    with pytest.raises(TargetError, match="weight w holds 100000, beyond what float16 can hold; use bf16 or fp32"):
        Typed(F16)(product(weight))
    model = product(weight)
    Typed(ir.DataType.BFLOAT16)(model)
    assert model.graph.inputs[0].dtype == ir.DataType.BFLOAT16


def test_a_weight_without_a_name_is_called_as_in_pytorch(tiny_bundle: Path) -> None:
    model = read(tiny_bundle, "encoder")
    weight = only(model, "MatMul")[3].inputs[1]
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1e7), name=weight.name)
    with pytest.raises(TargetError, match="weight model.encoder_layers.0.attention.output.weight holds"):
        Typed(F16)(model)


def test_infinite_weights_stay_infinite() -> None:
    model = product(np.full((2, 2), -np.inf, np.float32))
    Typed(F16)(model)
    assert np.isneginf(model.graph.initializers["w"].const_value.numpy()).all()


@pytest.mark.parametrize(("most", "block"), [(127, 64), (7, 32)])
def test_codes_are_the_nearest_to_each_weight(most: int, block: int) -> None:
    rng = np.random.default_rng(0)
    weight = (rng.normal(size=(64, 6)) * 10.0 ** np.arange(-3, 3)).astype(np.float32)
    weight[:, 3] = 0
    codes, scales = quantize(weight, most, block, F16)
    assert (codes.dtype, codes.shape, scales.dtype, scales.shape) == (np.int8, (64, 6), np.float16, (64 // block, 6))
    assert codes.min() >= -most - 1
    assert codes.max() <= most
    stored = np.repeat(scales.astype(np.float32), block, axis=0)
    cut = np.abs(codes) >= most
    assert (np.abs(codes * stored - weight)[~cut] <= stored[~cut] * 0.5001).all()
    assert not codes[:, 3].any()


def test_int4_scales_lose_less_than_those_of_the_largest_weight() -> None:
    weight = np.random.default_rng(1).standard_t(4, size=(128, 32)).astype(np.float32)
    codes, scales = quantize(weight, 7, 128, F32)
    usual = np.abs(weight).max(0) / 7
    error, usual_error = (
        np.square(c * s - weight).mean() for c, s in ((codes, scales), (np.rint(weight / usual), usual))
    )
    assert error < 0.9 * usual_error


@pytest.mark.parametrize(("weights", "tolerance"), [("int8", 0.1), ("int4", 1.2)])
@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_every_matrix_but_the_embedding_and_the_projection_is_stored_in_fewer_bits(
    tiny_bundle: Path, weights: str, tolerance: float, role: str
) -> None:
    model = typed(tiny_bundle, role, weights=weights)
    check(model)
    for node in only(model, "MatMul"):
        weight = node.inputs[1].producer()
        to_vocabulary = names.LOGITS in {value.name for user in node.outputs[0].consumers() for value in user.outputs}
        assert (weight is not None and weight.op_type == "DequantizeLinear") != to_vocabulary
    for node in only(model, "DequantizeLinear"):
        codes, scales = node.inputs
        assert codes.dtype == ir.DataType[weights.upper()]
        assert scales.dtype == node.outputs[0].dtype == F16
        error = evaluate_dequantize(node) - original(tiny_bundle, role, codes.name.removesuffix(".codes"))
        assert np.abs(error).max() < tolerance


def evaluate_dequantize(node: ir.Node) -> NDArray[np.float32]:
    codes, scales = (value.const_value.numpy().astype(np.float32) for value in node.inputs)
    return codes * np.repeat(scales.reshape(-1, codes.shape[1]), codes.shape[0] // (scales.size // codes.shape[1]), 0)


def original(bundle: Path, role: str, name: str) -> NDArray[np.float32]:
    array: NDArray[np.float32] = read(bundle, role).graph.initializers[name].const_value.numpy()
    return array


def test_int4_blocks_are_the_largest_that_fit_and_what_fits_none_is_reported() -> None:
    rng = np.random.default_rng(0)
    for shape, block in (((256, 6), 128), ((192, 6), 64), ((96, 6), 32)):
        model, four_bits = product(rng.normal(size=shape).astype(np.float32)), WeightOnly("int4", F32)
        four_bits(model)
        assert only(model, "DequantizeLinear")[0].attributes["block_size"].value == block
        assert four_bits.notes == []
        x = rng.normal(size=(2, shape[0])).astype(np.float32)
        weight = evaluate_dequantize(only(model, "DequantizeLinear")[0])
        np.testing.assert_allclose(evaluate(model, {"x": x})["y"], x @ weight, rtol=0, atol=1e-4)
    for shape in ((20, 6), (64, 5)):
        model, four_bits = product(rng.normal(size=shape).astype(np.float32)), WeightOnly("int4", F32)
        four_bits(model)
        assert not only(model, "DequantizeLinear")
        (note,) = four_bits.notes
        assert note.startswith("1 of 1 matrices stay in float")
        assert note.endswith(f", not w {shape}")


def test_logits_and_next_ids_are_computed_from_every_input(tiny_bundle: Path) -> None:
    model = typed(tiny_bundle, "decoder")
    outputs = {value.name: value for value in model.graph.outputs}
    read_by = {name: ancestry(outputs[name])[1] for name in (names.LOGITS, names.NEXT_IDS)}
    assert read_by[names.LOGITS] == read_by[names.NEXT_IDS] == {value.name for value in model.graph.inputs}
