"""Our own operators beside the functions that graphs carry, which ONNX Runtime computes with its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx_ir.passes import InPlacePass, Sequential
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.ort_cpu.block_codes import Scheme, quantize
from edgeformer.exporter.ort_cpu.own_attention import OwnAttention
from edgeformer.exporter.ort_cpu.own_products import OwnBlockProducts
from edgeformer.exporter.ort_cpu.own_relus import OwnRelus
from edgeformer.exporter.ort_cpu.row_quantized import RowQuantized
from edgeformer.exporter.ort_cpu.tables import TablesInCodes, TransposedTables
from edgeformer.exporter.ort_cpu.weight_only import Recipe, WeightOnly
from edgeformer.runtime import native

from .native_sessions import MICROSOFT, Array, Arrays, run, session

pytestmark = pytest.mark.skipif(native.instructions() is None, reason=f"own operators: {native.unused()}")


# Products by rows


def product(k: int, n: int, rng: np.random.Generator) -> ir.Model:
    """x (rows, k) -> y (rows, n), quantized by rows."""
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(("rows", k)))
    weight, bias = (ir.val(name, const_value=ir.tensor(rng.normal(size=shape).astype(np.float32), name=name))
                    for name, shape in (("w", (k, n)), ("b", (n,))))  # fmt: skip
    tape = ir.tape.Tape()
    y = tape.op("Add", [tape.op("MatMul", [x, weight]), bias])
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(("rows", n))
    graph = ir.Graph([x], [y], nodes=tape.nodes, initializers=[weight, bias], opset_imports={"": 21}, name="product")
    model = ir.Model(graph, ir_version=10)
    Sequential(RowQuantized(), RemoveUnusedNodesPass())(model)
    assert [node.op_type for node in model.graph if node.domain == "edgeformer"] == ["RowQuantizedMatMul"]
    return model


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 64, 301])
@pytest.mark.parametrize(("k", "n"), [(32, 4), (20, 6), (64, 70), (256, 768), (1536, 576), (33, 1)])
def test_a_product_has_the_bits_of_its_function(rows: int, k: int, n: int) -> None:
    rng = np.random.default_rng(rows * k + n)
    model = product(k, n, rng)
    x = (rng.normal(size=(rows, k)) * 10.0 ** rng.integers(-4, 4, (rows, 1))).astype(np.float32)
    x[rows // 2] = 0
    (expected,), (found,) = run(model, {"x": x}, own=False), run(model, {"x": x}, own=True)
    np.testing.assert_array_equal(found, expected)


def test_a_product_of_no_rows_is_empty() -> None:
    model = product(32, 8, np.random.default_rng(0))
    assert run(model, {"x": np.empty((0, 32), np.float32)}, own=True)[0].shape == (0, 8)


def test_a_product_is_computed_by_the_operator() -> None:
    """Not by the function: an input of another width is refused in the operator's words."""
    model = product(32, 8, np.random.default_rng(0))
    model.graph.inputs[0].shape = ir.Shape(("rows", "k"))
    with pytest.raises(Exception, match="RowQuantizedMatMul: x is not as wide as codes"):
        run(model, {"x": np.ones((2, 33), np.float32)}, own=True)


# Products with weights in blocks


def block_product(k: int, n: int, block: int, rng: np.random.Generator, bits: int = 4) -> tuple[ir.Model, Array, Array]:
    """x (rows, k) -> y (rows, n), with what its weight stands for, (k, n), and its bias."""
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(("rows", k)))
    weight, bias = rng.normal(size=(k, n)).astype(np.float32), rng.normal(size=n).astype(np.float32)
    values = [ir.val(name, const_value=ir.tensor(array, name=name)) for name, array in (("w", weight), ("b", bias))]
    tape = ir.tape.Tape()
    y = tape.op("Add", [tape.op("MatMul", [x, values[0]]), values[1]])
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(("rows", n))
    graph = ir.Graph([x], [y], nodes=tape.nodes, initializers=values, opset_imports={"": 21}, name="product")
    model = ir.Model(graph, ir_version=10)
    Sequential(WeightOnly(Recipe(bits, block)), OwnBlockProducts(), RemoveUnusedNodesPass())(model)
    assert [node.op_type for node in model.graph if node.domain == "edgeformer"] == ["BlockQuantizedMatMul"]
    return model, quantize(weight, Scheme(bits, block, True)).weight(), bias


def in_chunks(x: Array) -> Array:
    """Activations rounded to 8 bits, each 64 by their own largest value."""
    chunks = x.reshape(len(x), -1, 64)
    steps = np.abs(chunks).max(-1, keepdims=True) / np.float32(127)
    rounded = np.rint(chunks / np.where(steps == 0, 1, steps)) * steps
    return rounded.reshape(x.shape)  # type: ignore[no-any-return]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 66, 301])
@pytest.mark.parametrize(
    ("k", "n", "block"), [(64, 16, 32), (128, 48, 128), (576, 768, 64), (1536, 576, 128), (192, 272, 32)]
)
def test_a_product_in_blocks_is_that_of_the_rounded_numbers(rows: int, k: int, n: int, block: int, bits: int) -> None:
    rng = np.random.default_rng(rows * k + n)
    model, weight, bias = block_product(k, n, block, rng, bits)
    x = (rng.normal(size=(rows, k)) * 10.0 ** rng.integers(-4, 4, (rows, 1))).astype(np.float32)
    x[rows // 2] = 0
    (found,) = run(model, {"x": x}, own=True)
    expected = in_chunks(x).astype(np.float64) @ weight + bias
    # A number that lies between two codes may get either one.
    sizes = np.abs(x).max(axis=1, keepdims=True) * np.abs(weight).max() * np.sqrt(k)
    assert (np.abs(found - expected) <= 2e-3 * sizes + 1e-5).all()
    assert (np.abs(found - expected) <= 1e-5 * sizes + 1e-5).mean() > 0.95
    (function,) = run(model, {"x": x}, own=False)
    assert (np.abs(function - (x @ weight + bias)) <= 0.02 * sizes + 1e-5).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_in_blocks_is_what_it_is_alone(bits: int) -> None:
    model, _, _ = block_product(128, 64, 32, np.random.default_rng(0), bits)
    x = np.random.default_rng(1).normal(size=(7, 128)).astype(np.float32)
    together = run(model, {"x": x}, own=True)[0]
    for row in range(7):
        np.testing.assert_array_equal(run(model, {"x": x[row : row + 1]}, own=True)[0][0], together[row])


@pytest.mark.parametrize(("k", "n", "options"), [(96, 16, {}), (64, 24, {}), (64, 16, {"symmetric": False})])
def test_weights_that_do_not_fit_stay_with_onnx_runtime(k: int, n: int, options: dict[str, bool]) -> None:
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(("rows", k)))
    weight = ir.val("w", const_value=ir.tensor(np.ones((k, n), np.float32), name="w"))
    node = ir.node("MatMul", [x, weight])
    node.outputs[0].name = "y"
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[weight], opset_imports={"": 21}, name="product")
    model = ir.Model(graph, ir_version=10)
    Sequential(WeightOnly(Recipe(4, 32, **options)), OwnBlockProducts(), RemoveUnusedNodesPass())(model)
    assert [node.op_type for node in model.graph] == ["MatMulNBits"]


def test_codes_that_a_table_reads_as_well_stay_as_they_are() -> None:
    x, ids = ir.val("x", ir.DataType.FLOAT, ir.Shape(("rows", 64))), ir.val("ids", ir.DataType.INT64, ir.Shape(("n",)))
    table = np.random.default_rng(0).normal(size=(1024, 64)).astype(np.float32)
    value = ir.val("table", const_value=ir.tensor(table, name="table"))
    tape = ir.tape.Tape()
    outputs = [tape.op("MatMul", [x, tape.op("Transpose", [value])]), tape.op("Gather", [value, ids])]
    graph = ir.Graph([x, ids], outputs, nodes=tape.nodes, initializers=[value], opset_imports={"": 21}, name="tied")
    model = ir.Model(graph, ir_version=10)
    recipe = Recipe(8)
    Sequential(TransposedTables(), WeightOnly(recipe), TablesInCodes(recipe), RemoveUnusedNodesPass())(model)
    assert not OwnBlockProducts()(model).modified
    assert {node.op_type for node in model.graph} == {"MatMulNBits", "GatherBlockQuantized"}


# Products that end in a ReLU


@pytest.mark.parametrize("rows", [1, 5, 30])
@pytest.mark.parametrize(
    "making", [RowQuantized(), WeightOnly(Recipe(4)), WeightOnly(Recipe(8))], ids=["rows", "4", "8"]
)
def test_a_product_with_a_relu_is_the_product_and_a_relu(making: InPlacePass, rows: int) -> None:
    """As an operator, and as the function that calls the product's function."""
    rng = np.random.default_rng(rows)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((128, 64), (64,))]
    found = []
    for passes in ([OwnRelus()], []):
        x = ir.val("x", ir.DataType.FLOAT, ir.Shape(("rows", 128)))
        weight, bias = (
            ir.val(name, const_value=ir.tensor(w, name=name)) for name, w in zip("wb", weights, strict=True)
        )
        tape = ir.tape.Tape()
        y = tape.op("Relu", [tape.op("Add", [tape.op("MatMul", [x, weight]), bias])])
        y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(("rows", 64))
        graph = ir.Graph([x], [y], nodes=tape.nodes, initializers=[weight, bias], opset_imports={"": 21}, name="relu")
        model = ir.Model(graph, ir_version=10)
        Sequential(making, OwnBlockProducts(), *passes, RemoveUnusedNodesPass())(model)
        found.append(model)
    assert [node.op_type[-4:] for node in found[0].graph] == ["Relu"]
    assert len(list(found[1].graph)) == 2
    given = {"x": rng.normal(size=(rows, 128)).astype(np.float32)}
    for own in (True, False):
        together, apart = (run(model, given, own)[0] for model in found)
        np.testing.assert_array_equal(together, apart)
        assert 0.3 < (together == 0).mean() < 0.7


# Attention over caches


def attention(heads: int, kv_heads: int, *, packed: bool = False, rotary: bool = False, **attributes: Any) -> ir.Model:
    """ONNX Runtime's GroupQueryAttention as our own, around the function of its name."""
    names = ["query", "key", "value", "past_key", "past_value", "last", "total", *(["cos", "sin"] if rotary else [])]
    types = {"last": ir.DataType.INT32, "total": ir.DataType.INT32}
    shapes = {
        **dict.fromkeys(("query", "key", "value"), ("batch", "q_len", "width")),
        **dict.fromkeys(("past_key", "past_value"), ("batch", kv_heads, "capacity", attributes.pop("head_dim"))),
        "last": ("batch",), "total": (1,), **dict.fromkeys(("cos", "sin"), ("positions", "half")),
    }  # fmt: skip
    shapes["key"] = shapes["value"] = ("batch", "q_len", "kv_width")
    values = {name: ir.val(name, types.get(name, ir.DataType.FLOAT), ir.Shape(shapes[name])) for name in names}
    taken = [None if packed and name in ("key", "value") else values[name] for name in names]
    all_attributes = {
        "num_heads": heads,
        "kv_num_heads": kv_heads,
        **({"do_rotary": 1} if rotary else {}),
        **attributes,
    }
    node = ir.node("GroupQueryAttention", taken, all_attributes, domain=MICROSOFT, num_outputs=3)
    for value, name in zip(node.outputs, ("y", "present_key", "present_value"), strict=True):
        value.name, value.type = name, ir.TensorType(ir.DataType.FLOAT)
    inputs = [value for value in taken if value is not None]
    imports = {"": 21, MICROSOFT: 1}
    model = ir.Model(
        ir.Graph(inputs, node.outputs, nodes=[node], opset_imports=imports, name="attention"), ir_version=10
    )
    assert OwnAttention()(model).modified
    return model


def given(
    lengths: list[int], q_len: int, capacity: int, heads: int, kv_heads: int, head_dim: int, packed: bool, empty: bool
) -> Arrays:
    """Random tokens of rows that hold `lengths` with them."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    batch, total = len(lengths), max(lengths)
    parts = [random(batch, q_len, count * head_dim) for count in (heads, kv_heads, kv_heads)]
    tokens = (
        {"query": np.concatenate(parts, axis=2)} if packed else dict(zip(("query", "key", "value"), parts, strict=True))
    )
    angles = np.outer(np.arange(capacity), 10.0 ** -np.linspace(0, 3, head_dim // 2))
    past = {name: random(batch, kv_heads, capacity, head_dim) for name in ("past_key", "past_value")}
    if empty:
        past = {name: np.zeros_like(value) for name, value in past.items()}
    return {
        **tokens, **past, "last": np.array(lengths, np.int32) - 1, "total": np.array([total], np.int32),
        "cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32),
    }  # fmt: skip


CASES = {
    "one head a group": {"heads": 4, "kv_heads": 4, "head_dim": 64},
    "groups": {"heads": 6, "kv_heads": 2, "head_dim": 64, "rotary": True},
    "one group of many": {"heads": 40, "kv_heads": 1, "head_dim": 16, "rotary": True},
    "narrow, packed": {"heads": 3, "kv_heads": 3, "head_dim": 8, "packed": True},
    "wide, packed, turned": {"heads": 4, "kv_heads": 2, "head_dim": 256, "packed": True, "rotary": True},
    "neighbours turned": {"heads": 4, "kv_heads": 2, "head_dim": 48, "rotary": True, "rotary_interleaved": 1},
    "a window": {"heads": 4, "kv_heads": 2, "head_dim": 40, "local_window_size": 100},
    "a narrow window": {"heads": 2, "kv_heads": 2, "head_dim": 32, "local_window_size": 3, "rotary": False},
    "another scale": {"heads": 2, "kv_heads": 1, "head_dim": 32, "scale": 0.25},
}
STEPS = {
    "one token a row": ([1, 128, 300, 129], 1, 310, False),
    "one token, alone": ([257], 1, 257, False),
    "a prompt": ([300], 300, 320, True),
    "prompts of several lengths": ([40, 7, 1], 40, 64, True),
    "more of a prompt": ([290], 33, 300, False),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("case", CASES)
def test_attention_is_that_of_onnx_runtime(case: str, step: str) -> None:
    options, (lengths, q_len, capacity, empty) = CASES[case], STEPS[step]
    model = attention(**options)  # type: ignore[arg-type]
    heads, kv_heads, head_dim = (int(options[name]) for name in ("heads", "kv_heads", "head_dim"))
    arrays = given(lengths, q_len, capacity, heads, kv_heads, head_dim, bool(options.get("packed")), empty)
    taken = {value.name: arrays[value.name] for value in model.graph.inputs if value.name}
    expected, found = run(model, taken, own=False), run(model, taken, own=True)
    for row, length in enumerate(lengths):
        tokens = slice(0, length if empty else q_len)
        np.testing.assert_allclose(found[0][row, tokens], expected[0][row, tokens], rtol=0, atol=2e-5)
        for mine, other in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_allclose(mine[row, :, :length], other[row, :, :length], rtol=0, atol=2e-6)


@pytest.mark.parametrize("step", ["one token a row", "prompts of several lengths"])
def test_a_row_attends_as_it_does_alone(step: str) -> None:
    lengths, q_len, capacity, empty = STEPS[step]
    model = attention(heads=6, kv_heads=2, head_dim=64)
    arrays = given(lengths, q_len, capacity, 6, 2, 64, packed=False, empty=empty)
    taken = {value.name: arrays[value.name] for value in model.graph.inputs if value.name}
    together = run(model, taken, own=True)
    for row, length in enumerate(lengths):
        alone = {name: array[row : row + 1] if name != "total" else array for name, array in taken.items()}
        np.testing.assert_array_equal(run(model, alone, own=True)[0][0], together[0][row], err_msg=f"{length} tokens")


def test_caches_are_written_where_they_are_bound() -> None:
    model = attention(heads=4, kv_heads=2, head_dim=64)
    arrays = given([9, 4], 1, 12, 4, 2, 64, packed=False, empty=False)
    taken = {value.name: arrays[value.name] for value in model.graph.inputs if value.name}
    expected = run(model, taken, own=True)
    own = session(model, own=True)
    binding = own.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in taken.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    for name in ("key", "value"):
        binding.bind_ortvalue_output(f"present_{name}", values[f"past_{name}"])
    own.run_with_iobinding(binding)
    found = [binding.get_outputs()[0].numpy(), values["past_key"].numpy(), values["past_value"].numpy()]
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"last": np.array([12, 3], np.int32)}, "last position is outside its cache"),
        ({"last": np.array([-1, 3], np.int32)}, "last position is outside its cache"),
        ({"total": np.array([13], np.int32)}, "more tokens than its cache has room for"),
        ({"query": np.ones((2, 1, 8), np.float32)}, "query is not as wide as its heads"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(change: Arrays, message: str) -> None:
    model = attention(heads=4, kv_heads=2, head_dim=64)
    arrays = given([9, 4], 1, 12, 4, 2, 64, packed=False, empty=False) | change
    taken = {value.name: arrays[value.name] for value in model.graph.inputs if value.name}
    with pytest.raises(Exception, match=message):
        run(model, taken, own=True)


def test_tables_that_end_too_early_are_refused() -> None:
    model = attention(heads=4, kv_heads=2, head_dim=64, rotary=True)
    arrays = given([9, 4], 1, 12, 4, 2, 64, packed=False, empty=False)
    taken = {value.name: arrays[value.name] for value in model.graph.inputs if value.name}
    taken |= {name: taken[name][:8] for name in ("cos", "sin")}
    with pytest.raises(Exception, match="for all positions"):
        run(model, taken, own=True)


# How it is found


def test_they_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFORMER_NATIVE", "0")
    assert native.instructions() is None
    assert native.unused() == "EDGEFORMER_NATIVE is 0"


def test_without_a_build_graphs_run_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    assert native.instructions() is None
    assert "C compiler" in (native.unused() or "")
    assert len(run(product(32, 8, np.random.default_rng(0)), {"x": np.ones((1, 32), np.float32)}, own=True)) == 1


@pytest.mark.skipif(native.instructions() == "AVX2", reason="these are the forms that the tests have just run")
def test_forms_for_avx2_pass_the_same_tests() -> None:
    files = sorted(str(path) for path in Path(__file__).parent.glob("test_native*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env={**os.environ, "EDGEFORMER_NATIVE": "avx2"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert " skipped" in done.stdout.splitlines()[-1]  # this one
