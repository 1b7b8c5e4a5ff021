"""Each pass does what it ensures, computes what was computed before, and refuses what it does not expect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_ir.passes import InPlacePass, PassError, PreconditionError
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.ort_cpu import rewrite, use_own_operators
from edgeformer.exporter.ort_cpu.attention import MICROSOFT, is_write
from edgeformer.exporter.ort_cpu.block_codes import Scheme, quantize
from edgeformer.exporter.ort_cpu.cached_attention import CachedAttention
from edgeformer.exporter.ort_cpu.given_positions import GivenPositions
from edgeformer.exporter.ort_cpu.matching import producer, register
from edgeformer.exporter.ort_cpu.own_operators import DOMAIN
from edgeformer.exporter.ort_cpu.projections import PackProjections
from edgeformer.exporter.ort_cpu.row_quantized import OPERATOR, RowQuantized, quantize_columns
from edgeformer.exporter.ort_cpu.source_attention import SourceAttention
from edgeformer.exporter.ort_cpu.tables import TablesInCodes, TransposedTables
from edgeformer.exporter.ort_cpu.unused_inputs import UnusedInputs
from edgeformer.exporter.ort_cpu.wanted_rows import WantedRows
from edgeformer.exporter.ort_cpu.weight_only import Recipe, WeightOnly
from edgeformer.runtime import names
from edgeformer.runtime.bundle import read_manifest

from .graphs import Arrays, close, encoder_inputs, only, operators, read, run, step_inputs, within


@pytest.fixture(scope="module")
def sizes(tiny_bundle: Path) -> names.Sizes:
    return read_manifest(tiny_bundle).sizes


@pytest.fixture
def encoder(tiny_bundle: Path) -> ir.Model:
    return read(tiny_bundle, "encoder")


@pytest.fixture
def decoder(tiny_bundle: Path) -> ir.Model:
    return read(tiny_bundle, "decoder")


def prefill(sizes: names.Sizes) -> Arrays:
    """Several tokens a row, into empty caches."""
    return step_inputs(sizes, batch=3, source_len=7, q_len=5, capacity=12, wanted=2, empty=True)


def one_token(sizes: names.Sizes) -> Arrays:
    """One token a row, over caches of different lengths."""
    return step_inputs(sizes, batch=3, source_len=7, q_len=1, capacity=12, wanted=1)


def logits(model: ir.Model, given: Arrays) -> Arrays:
    return {names.LOGITS: run(model, given)[names.LOGITS]}


def written(model: ir.Model, given: Arrays, sizes: names.Sizes) -> Arrays:
    """The caches, up to each row's new length."""
    after = given[names.CACHE_LENGTHS] + given[names.INPUT_IDS].shape[1]
    outputs = run(model, given)
    return within({name: outputs[name] for name in names.present_names(sizes)}, after)


def apply(model: ir.Model, *passes: InPlacePass) -> None:
    for one in (*passes, RemoveUnusedNodesPass()):
        one(model)


# Attention over a cache


def test_cached_attention_is_one_kernel_that_writes_the_cache(decoder: ir.Model, sizes: names.Sizes) -> None:
    given = [prefill(sizes), one_token(sizes)]
    before = [(logits(decoder, each), written(decoder, each, sizes)) for each in given]
    outputs = [value.name for value in decoder.graph.outputs]
    apply(decoder, CachedAttention())
    counts = operators(decoder)
    assert counts["GroupQueryAttention"] == sizes.num_layers
    assert counts["Attention"] == sizes.num_layers  # over the source
    assert counts["TensorScatter"] == 0
    assert decoder.opset_imports[MICROSOFT] == 1
    assert [value.name for value in decoder.graph.outputs] == outputs
    inputs = [value.name for value in decoder.graph.inputs]
    assert inputs[-2:] == [names.LAST_POSITIONS, names.TOTAL_LENGTH]
    for each, (old_logits, old_caches) in zip(given, before, strict=True):
        close(logits(decoder, each), old_logits)
        close(written(decoder, each, sizes), old_caches)


def test_cached_attention_leaves_an_encoder_alone(encoder: ir.Model) -> None:
    before = operators(encoder)
    assert not CachedAttention()(encoder).modified
    assert operators(encoder) == before
    assert MICROSOFT not in encoder.opset_imports


# Attention over a source


def test_source_attention_is_one_kernel_in_an_encoder(encoder: ir.Model) -> None:
    given = encoder_inputs(3, 7)
    before = run(encoder, given)
    apply(encoder, SourceAttention())
    counts = operators(encoder)
    assert counts["MultiHeadAttention"] == 2
    assert counts["Attention"] == 0
    assert counts["Less"] == counts["Expand"] == 0  # the mask
    lengths = given[names.SOURCE_LENGTHS]
    close(within(run(encoder, given), lengths), within(before, lengths))


def test_source_attention_is_one_kernel_in_a_step(decoder: ir.Model, sizes: names.Sizes) -> None:
    given = one_token(sizes)
    before = run(decoder, given)
    apply(decoder, SourceAttention())
    counts = operators(decoder)
    assert counts["MultiHeadAttention"] == counts["Attention"] == sizes.num_layers
    close(run(decoder, given), before)


# Positions, wanted rows, projections


def test_positions_are_given_and_lengths_are_not_read_any_more(decoder: ir.Model, sizes: names.Sizes) -> None:
    given = one_token(sizes)
    before = logits(decoder, given)
    apply(decoder, GivenPositions(), CachedAttention())
    apply(decoder, UnusedInputs())
    inputs = [value.name for value in decoder.graph.inputs]
    assert names.CACHE_LENGTHS not in inputs
    assert names.POSITIONS in inputs
    assert operators(decoder)["Clip"] == 0
    close(logits(decoder, given), before)


def test_lengths_stay_an_input_while_they_are_read_elsewhere(decoder: ir.Model, sizes: names.Sizes) -> None:
    given = [prefill(sizes), one_token(sizes)]
    before = [run(decoder, each) for each in given]
    apply(decoder, GivenPositions(), UnusedInputs())
    assert {names.CACHE_LENGTHS, names.POSITIONS} <= {value.name for value in decoder.graph.inputs}
    for each, expected in zip(given, before, strict=True):
        close(run(decoder, each), expected)


@pytest.mark.parametrize("limit", [5, 62])
def test_positions_that_are_clamped_elsewhere_than_at_their_tables_end_are_computed(
    decoder: ir.Model, limit: int
) -> None:
    (clip,) = only(decoder, "Clip")
    clip.replace_input_with(2, register(decoder.graph, "limit", np.array(limit)))
    apply(decoder, GivenPositions())
    assert only(decoder, "Clip") == [clip]
    assert clip.inputs[0] is not None
    assert clip.inputs[0].name == names.POSITIONS


def test_wanted_rows_are_picked_by_one_operator(decoder: ir.Model, sizes: names.Sizes) -> None:
    given = [prefill(sizes), one_token(sizes)]
    before = [run(decoder, each) for each in given]
    nodes = len(decoder.graph)
    apply(decoder, WantedRows())
    assert len(decoder.graph) < nodes
    (gather,) = only(decoder, "GatherND")
    assert gather.attributes["batch_dims"].value == 1
    readers = [use.node.op_type for use in decoder.graph.inputs[2].uses()]
    assert (decoder.graph.inputs[2].name, readers) == (names.LOGITS_AT, ["Unsqueeze"])
    for each, expected in zip(given, before, strict=True):
        close(run(decoder, each), expected, tolerance=0)


class Widening(ir.Tensor):
    """As a tensor in a file is to numpy 2.2: its array is of float64 where nobody says which."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy().astype(dtype or np.float64)


def test_packed_biases_keep_their_type_whatever_numpy_makes_of_a_tensor(encoder: ir.Model) -> None:
    for value in encoder.graph.initializers.values():
        if value.name and value.name.endswith("bias") and value.const_value is not None:
            value.const_value = Widening(value.const_value.numpy(), name=value.name)
    apply(encoder, PackProjections())
    packed = [value for name, value in encoder.graph.initializers.items() if name.endswith("packed.bias")]
    assert [value.dtype for value in packed] == [ir.DataType.FLOAT] * 3


def test_projections_of_one_value_are_one_product(encoder: ir.Model, decoder: ir.Model, sizes: names.Sizes) -> None:
    given = encoder_inputs(3, 7)
    before = run(encoder, given)
    apply(encoder, PackProjections())
    # Each of 2 layers has 6 products: query, key and value become one. Both decoder layers' keys and values, too.
    assert (operators(encoder)["MatMul"], operators(encoder)["Split"]) == (2 * 4 + 1, 3)
    readers = [node.inputs[0] for node in only(encoder, "MatMul")]
    assert len(set(readers)) == len(readers)
    close(run(encoder, given), before)

    given = prefill(sizes)
    before = logits(decoder, given)
    apply(decoder, CachedAttention(), PackProjections())
    for node in only(decoder, "GroupQueryAttention"):  # takes them as they are
        assert node.inputs[0] is not None
        assert node.inputs[1] is node.inputs[2] is None
    assert operators(decoder)["Split"] == 0
    close(logits(decoder, given), before)


# Fewer bits; block_codes and gptq have tests of their own


def test_a_weight_in_columns_is_off_by_half_a_step_at_most() -> None:
    rng = np.random.default_rng(0)
    weight = (rng.normal(size=(24, 5)) * 10.0 ** rng.integers(-3, 3, 5)).astype(np.float32)
    weight[:, 2] = 0
    weight[3, 4] = 0
    codes, scales = quantize_columns(weight)
    assert (codes.dtype, codes.shape, scales.dtype, scales.shape) == (np.int8, (24, 5), np.float32, (5,))
    assert (np.abs(codes * scales - weight) <= scales / 2 * (1 + 1e-5)).all()
    assert (codes[weight == 0] == 0).all()
    assert codes.min() >= -64


def product(weight: np.ndarray, bias: np.ndarray | None = None) -> ir.Model:
    """x -> MatMul(weight) -> Add(bias) -> y."""
    k, n = weight.shape
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(("rows", k)))
    tape = ir.tape.Tape()
    w = ir.val("w", const_value=ir.tensor(weight, name="w"))
    y = tape.op("MatMul", [x, w])
    initializers = [w]
    if bias is not None:
        b = ir.val("b", const_value=ir.tensor(bias, name="b"))
        y = tape.op("Add", [y, b])
        initializers.append(b)
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(("rows", n))
    graph = ir.Graph([x], [y], nodes=tape.nodes, initializers=initializers, opset_imports={"": 21}, name="product")
    return ir.Model(graph, ir_version=10)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("k", "block"), [(32, 32), (96, 32), (64, 64), (256, 128)])
def test_products_in_codes_are_those_of_the_rounded_weight(
    k: int, block: int, with_bias: bool, bits: int, symmetric: bool
) -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(k, 24)).astype(np.float32)
    bias = rng.normal(size=24).astype(np.float32) if with_bias else None
    x = rng.normal(size=(5, k)).astype(np.float32)
    rounded = quantize(weight, Scheme(bits, block, symmetric)).weight()
    model = product(weight, bias)
    apply(model, WeightOnly(Recipe(bits, symmetric=symmetric)))
    assert operators(model) == {"MatMulNBits": 1}
    assert model.graph[0].attributes["block_size"].value == block
    assert [value.name for value in model.graph.outputs] == ["y"]
    found = run(model, {"x": x})["y"]
    # The kernel rounds x to 8 bits as well, in blocks.
    np.testing.assert_allclose(found, x @ rounded + (0 if bias is None else bias), rtol=0, atol=0.03 * np.sqrt(k))
    apply(model := product(weight * 0, bias), WeightOnly(Recipe(bits, symmetric=symmetric)))
    expected = np.zeros((5, 24), np.float32) if bias is None else np.broadcast_to(bias, (5, 24))
    np.testing.assert_array_equal(run(model, {"x": x})["y"], expected)


def test_large_tables_are_read_from_codes_of_8_bits() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1500, 64)).astype(np.float32)
    ids = ir.val("ids", ir.DataType.INT64, ir.Shape(("n",)))
    tape = ir.tape.Tape()
    values = ir.val("table", const_value=ir.tensor(table, name="table"))
    weight = ir.val("w", const_value=ir.tensor(np.eye(64, dtype=np.float32), name="w"))
    rows = tape.op("Gather", [values, ids])
    rows.type, rows.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(("n", 64))
    tape.op("MatMul", [rows, weight])
    rows.name = "rows"
    graph = ir.Graph(
        [ids], [rows], nodes=tape.nodes, initializers=[values, weight], opset_imports={"": 21}, name="table"
    )
    model = ir.Model(graph, ir_version=10)
    apply(model, TablesInCodes(Recipe(4)))
    assert operators(model)["GatherBlockQuantized"] == 1
    chosen = np.array([0, 7, 1499])
    expected = quantize(table.T, Scheme(8, 64)).weight().T[chosen]
    np.testing.assert_allclose(run(model, {"ids": chosen})["rows"], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_table_that_a_product_reads_transposed_is_in_codes_for_both(bits: int) -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(1500, 64)).astype(np.float32)
    ids = ir.val("ids", ir.DataType.INT64, ir.Shape(("n",)))
    values = ir.val("table", const_value=ir.tensor(table, name="table"))
    tape = ir.tape.Tape()
    logits = tape.op("MatMul", [tape.op("Gather", [values, ids]), tape.op("Transpose", [values], {"perm": [1, 0]})])
    logits.name, logits.type, logits.shape = "logits", ir.TensorType(ir.DataType.FLOAT), ir.Shape(("n", 1500))
    graph = ir.Graph([ids], [logits], nodes=tape.nodes, initializers=[values], opset_imports={"": 21}, name="tied")
    model = ir.Model(graph, ir_version=10)
    apply(model, TransposedTables())
    apply(model, WeightOnly(Recipe(bits)))
    apply(model, TablesInCodes(Recipe(bits)))
    assert operators(model) == {"GatherBlockQuantized": 1, "MatMulNBits": 1}
    chosen = np.array([0, 7, 1499])
    rows = quantize(table.T, Scheme(8, 64)).weight().T[chosen]
    expected = rows @ quantize(table.T, Scheme(bits, 64)).weight()
    np.testing.assert_allclose(run(model, {"ids": chosen})["logits"], expected, rtol=0, atol=0.03 * np.sqrt(64))


@pytest.mark.parametrize(("perm", "left"), [([1, 0], 0), ([0, 1], 1), (None, 0)])
def test_a_constant_is_turned_as_its_transpose_says(perm: list[int] | None, left: int) -> None:
    values = ir.val("table", const_value=ir.tensor(np.arange(9, dtype=np.float32).reshape(3, 3), name="table"))
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(("n", 3)))
    tape = ir.tape.Tape()
    y = tape.op("MatMul", [x, tape.op("Transpose", [values], None if perm is None else {"perm": perm})])
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(("n", 3))
    graph = ir.Graph([x], [y], nodes=tape.nodes, initializers=[values], opset_imports={"": 21}, name="turned")
    model, given = ir.Model(graph, ir_version=10), {"x": np.eye(3, dtype=np.float32)}
    expected = run(model, given)["y"]
    assert TransposedTables()(model).modified == (left == 0)
    assert operators(model)["Transpose"] == left
    np.testing.assert_array_equal(run(model, given)["y"], expected)


def test_a_block_that_was_asked_for_and_divides_nothing_is_refused() -> None:
    with pytest.raises(PreconditionError, match="no weight can be stored in blocks of 128"):
        WeightOnly(Recipe(4, block=128))(product(np.ones((96, 4), np.float32)))


@pytest.mark.parametrize("k", [20, 33, 48])
def test_a_width_that_fits_no_block_stays_as_it_is(k: int) -> None:
    model = product(np.ones((k, 4), np.float32))
    assert not WeightOnly(Recipe(8))(model).modified
    assert operators(model) == {"MatMul": 1}


def test_products_by_rows_are_those_of_the_rounded_weight_and_rows() -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(20, 6)).astype(np.float32), rng.normal(size=6).astype(np.float32)
    x = (rng.normal(size=(7, 20)) * 10.0 ** rng.integers(-3, 3, (7, 1))).astype(np.float32)
    x[3] = 0
    codes, scales = quantize_columns(weight)
    steps = np.maximum(np.abs(x).max(axis=1, keepdims=True) / 127, 1e-12)
    expected = np.rint(x / steps) * steps @ (codes * scales) + bias
    model = product(weight, bias)
    apply(model, RowQuantized())
    assert operators(model)["MatMul"] == 0
    assert operators(model)[OPERATOR] == 1
    found = run(model, {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found[3], bias)
    for row in range(7):  # nothing of the rows beside it
        np.testing.assert_array_equal(run(model, {"x": x[row : row + 1]})["y"][0], found[row])


def test_products_by_rows_do_not_saturate_in_16_bits() -> None:
    """The largest codes side by side: without VNNI a processor adds two products in 16 bits."""
    weight, x = np.ones((64, 8), np.float32), np.ones((2, 64), np.float32)
    apply(model := product(weight), RowQuantized())
    np.testing.assert_allclose(run(model, {"x": x})["y"], x @ weight, rtol=1e-5)


def test_every_constant_product_is_in_8_bits(encoder: ir.Model, decoder: ir.Model, sizes: names.Sizes) -> None:
    products = operators(decoder)["MatMul"]
    apply(decoder, WeightOnly(Recipe(8)))
    assert (operators(decoder)["MatMul"], operators(decoder)["MatMulNBits"]) == (0, products)
    products = operators(encoder)["MatMul"]
    apply(encoder, RowQuantized())
    assert (operators(encoder)["MatMul"], operators(encoder)[OPERATOR]) == (0, products)
    assert [value.name for value in encoder.graph.outputs] == names.encoded_names(sizes)


# The whole way


@pytest.mark.parametrize("precision", ["fp32", "int8", "int8-rows", "int4"])
def test_rewritten_graphs_have_the_operators_that_they_should(
    tiny_bundle: Path, precision: str, sizes: names.Sizes
) -> None:
    encoder, decoder = read(tiny_bundle, "encoder"), read(tiny_bundle, "decoder")
    for model in (encoder, decoder):
        rewrite(model, precision)
        assert operators(model)["MultiHeadAttention"] == 2
        use_own_operators(model, precision)
    for model, products in ((encoder, 9), (decoder, 13)):
        own = 2 if precision in ("int4", "int8") else 0  # those whose inputs are a multiple of 64, which these are wide
        counts = operators(model)
        assert counts["BlockQuantizedMatMul"] == own
        relus = 2 if precision == "int8-rows" else 0
        assert counts[f"{OPERATOR}Relu"] == relus
        assert counts["PanelMatMulRelu"] == (2 if precision == "fp32" else 0)
        assert counts["Relu"] == (2 if precision in ("int4", "int8") else 0)
        assert counts["MatMulNBits"] == (products - own if precision in ("int8", "int4") else 0)
        assert counts[OPERATOR] == (products - relus if precision == "int8-rows" else 0)
    for model in (encoder, decoder):
        counts = operators(model)
        assert counts["Attention"] == counts["TensorScatter"] == 0
        assert counts["MultiHeadAttention"] == counts["LayerNormalization"] == 0
        assert counts["SelfAttention" if model is encoder else "SourceAttention"] == 2
        assert counts["AddLayerNormalization"] == (4 if model is encoder else 6)
        assert (counts["MatMul"] == 0) == (precision != "fp32")
        own = {DOMAIN: 1} if model.functions else {}
        assert dict(model.opset_imports) == {"": 21, MICROSOFT: 1} | own
        used = {node.op_type for node in model.graph if node.domain == DOMAIN}
        called = {name.removesuffix("Relu") for name in used}  # by the functions of those with a ReLU
        assert {name for _, name, _ in model.functions} == used | called
        onnx.checker.check_model(ir.to_proto(model))
    assert operators(decoder)["GroupQueryAttention"] == sizes.num_layers
    assert {name for name, count in operators(decoder).items() if count > 9} <= {
        "Add",
        "MatMul",
        "MatMulNBits",
        OPERATOR,
        "BlockQuantizedMatMul",
    }
    assert len(decoder.graph) < {"fp32": 60, "int8": 50, "int4": 50, "int8-rows": 50}[precision]


@pytest.mark.parametrize("precision", ["fp32", "int8", "int8-rows", "int4"])
def test_rewritten_graphs_compute_what_was_computed_before(
    tiny_bundle: Path, precision: str, sizes: names.Sizes
) -> None:
    tolerance = {"fp32": 1e-4, "int4": 1.5}.get(precision, 0.5)  # of logits up to 9; processors round activations apart
    encoder, decoder = read(tiny_bundle, "encoder"), read(tiny_bundle, "decoder")
    for batch, source_len in ((1, 1), (3, 7), (1, 32)):
        given = encoder_inputs(batch, source_len)
        lengths = given[names.SOURCE_LENGTHS]
        expected = within(run(encoder, given), lengths)
        rewrite(rewritten := read(tiny_bundle, "encoder"), precision)
        close(within(run(rewritten, given), lengths), expected, tolerance)
    rewrite(rewritten := read(tiny_bundle, "decoder"), precision)
    for given in (prefill(sizes), one_token(sizes)):
        close(logits(rewritten, given), logits(decoder, given), tolerance)
        close(written(rewritten, given, sizes), written(decoder, given, sizes), tolerance)


def test_a_source_serves_several_rows(decoder: ir.Model, sizes: names.Sizes) -> None:
    """The beams of a source attend to its one copy."""
    given = one_token(sizes)
    of_sources = [names.SOURCE_LENGTHS, *names.encoded_names(sizes)]
    copied = {**given, **{name: np.repeat(given[name][:2], [2, 1], axis=0) for name in of_sources}}
    before = run(decoder, copied)
    rewrite(decoder, "fp32")
    pair = {
        name: array[:2] if array.shape[:1] == (3,) and name not in (names.SOURCE_SHAPE, names.ROW_SHAPE) else array
        for name, array in given.items()
    }
    width = sizes.num_heads * sizes.head_dim
    pair |= {name: given[name][:1] for name in of_sources}
    pair |= {names.SOURCE_SHAPE: np.array([1, 2, width]), names.ROW_SHAPE: np.array([2, 1, width])}
    close({names.LOGITS: run(decoder, pair)[names.LOGITS]}, {names.LOGITS: before[names.LOGITS][:2]})


# Graphs that are not as expected

Change = Callable[[ir.Model], None]


def not_miscompiled(model: ir.Model, role: str, given: Arrays) -> None:
    """It is refused, or still computes what it computed."""
    before = run(model, given)
    try:
        rewrite(model, "fp32")
    except PassError as error:
        if not isinstance(error.__cause__, PreconditionError):
            raise
        return
    found = run(model, given)
    if role == "encoder":
        found, before = (within(each, given[names.SOURCE_LENGTHS]) for each in (found, before))
        close(found, before)
    else:
        close({names.LOGITS: found[names.LOGITS]}, {names.LOGITS: before[names.LOGITS]})


def forget_heads(model: ir.Model) -> None:
    query = only(model, "Attention")[0].inputs[0]
    assert query is not None
    query.shape = ir.Shape(("batch", "heads", "q_len", 16))


def put_between(model: ir.Model, value: ir.Value, op_type: str) -> None:
    """value -> op_type -> what read value."""
    readers = list(value.uses())
    node = ir.node(op_type, [value])
    node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
    producer = value.producer()
    assert producer is not None
    model.graph.insert_after(producer, node)
    for use in readers:
        use.node.replace_input_with(use.idx, node.outputs[0])


def change_the_attended(model: ir.Model) -> None:
    put_between(model, only(model, "Attention")[0].outputs[0], "Neg")


def change_the_query(model: ir.Model) -> None:
    """As a rotary embedding does."""
    query = only(model, "Attention")[0].inputs[0]
    assert query is not None
    put_between(model, query, "Neg")


def change_the_key(model: ir.Model) -> None:
    node = only(model, "TensorScatter")[0] if only(model, "TensorScatter") else only(model, "Attention")[0]
    key = node.inputs[1]
    assert key is not None
    put_between(model, key, "Neg")


def invert_the_mask(model: ir.Model) -> None:
    mask = only(model, "Attention")[0].inputs[3]
    assert mask is not None
    put_between(model, mask, "Not")


def turn_the_comparison(model: ir.Model) -> None:
    """A query sees what comes after it."""
    (compare,) = only(model, "LessOrEqual") or only(model, "Less")
    left, right = compare.inputs
    compare.replace_input_with(0, right)
    compare.replace_input_with(1, left)


def scale_the_scores(model: ir.Model) -> None:
    only(model, "Attention")[0].attributes["scale"] = ir.AttrFloat32("scale", 1.0)


def cap_the_scores(model: ir.Model) -> None:
    only(model, "Attention")[0].attributes["softcap"] = ir.AttrFloat32("softcap", 30.0)


def write_in_a_circle(model: ir.Model) -> None:
    only(model, "TensorScatter")[0].attributes["mode"] = ir.AttrString("mode", "circular")


def write_elsewhere(model: ir.Model) -> None:
    for node in only(model, "TensorScatter"):
        node.replace_input_with(2, next(v for v in model.graph.inputs if v.name == names.SOURCE_LENGTHS))


EITHER = [forget_heads, change_the_attended, change_the_query, change_the_key, invert_the_mask, turn_the_comparison]
EITHER += [scale_the_scores, cap_the_scores]


@pytest.mark.parametrize("change", EITHER, ids=lambda change: change.__name__)
def test_an_attention_over_a_source_of_another_kind_is_not_miscompiled(encoder: ir.Model, change: Change) -> None:
    change(encoder)
    not_miscompiled(encoder, "encoder", encoder_inputs(3, 7))


@pytest.mark.parametrize("change", [*EITHER, write_in_a_circle, write_elsewhere], ids=lambda change: change.__name__)
def test_an_attention_over_a_cache_of_another_kind_is_not_miscompiled(
    decoder: ir.Model, sizes: names.Sizes, change: Change
) -> None:
    change(decoder)
    not_miscompiled(decoder, "decoder", one_token(sizes))


def test_heads_that_the_kernel_does_not_take_stay_with_the_portable_attention(decoder: ir.Model) -> None:
    """It takes a multiple of 8 only, and says so when it runs."""
    cached = [node for node in only(decoder, "Attention") if is_write(producer(node.inputs[1], "TensorScatter"))]
    for value in cached[0].inputs[:3]:
        assert value is not None
        assert value.shape is not None
        value.shape = ir.Shape((*value.shape[:3], 12))
    rewrite(decoder, "fp32")
    assert only(decoder, "Attention") == cached[:1]
    assert operators(decoder)["GroupQueryAttention"] == len(cached) - 1
    assert decoder.opset_imports[""] == 24
    assert names.CACHE_LENGTHS in {value.name for value in decoder.graph.inputs}


def test_a_bias_of_another_width_is_left_alone() -> None:
    """One number that is added to every output."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(32, 4)).astype(np.float32), np.array([0.5], np.float32)
    x = rng.normal(size=(5, 32)).astype(np.float32)
    expected = run(product(weight, bias), {"x": x})["y"]
    for one in (WeightOnly(Recipe(8)), RowQuantized(), PackProjections()):
        model = product(weight, bias)
        apply(model, one)
        np.testing.assert_allclose(run(model, {"x": x})["y"], expected, rtol=0, atol=0.2)
