"""Attention over sources by our own operators, beside ONNX Runtime's MultiHeadAttention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import Sequential
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.ort_cpu.own_attention import OwnSourceAttention
from edgeformer.runtime import names, native

from .native_sessions import MICROSOFT, Array, run

pytestmark = pytest.mark.skipif(native.instructions() is None, reason=f"own operators: {native.unused()}")

FLOAT, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64
SIZES = [(1, 8), (4, 64), (12, 64), (3, 40), (2, 256)]  # heads and their width


def over_source(heads: int, head_dim: int, scale: float | None = None) -> ir.Model:
    """query (rows, q_len, width), key and value (sources, heads, source_len, head_dim), lengths, shapes -> y."""
    width = heads * head_dim
    query = ir.val("query", FLOAT, ir.Shape(("rows", "q_len", width)))
    key, value = (
        ir.val(name, FLOAT, ir.Shape(("sources", heads, "source_len", head_dim))) for name in ("key", "value")
    )
    lengths = ir.val("lengths", INT32, ir.Shape(("sources",)))
    by_source, by_row = (ir.val(name, INT64, ir.Shape((3,))) for name in (names.SOURCE_SHAPE, names.ROW_SHAPE))
    tape = ir.tape.Tape()
    attributes = {"num_heads": heads, **({"scale": scale} if scale is not None else {})}
    x = tape.op("Reshape", [query, by_source])
    attended = tape.op("MultiHeadAttention", [x, key, value, None, lengths], attributes, domain=MICROSOFT)
    return model_of([query, key, value, lengths, by_source, by_row], tape, tape.op("Reshape", [attended, by_row]))


def over_itself(heads: int, head_dim: int) -> ir.Model:
    """packed (batch, source_len, 3 * width), lengths (batch,) -> y."""
    width = heads * head_dim
    packed = ir.val("packed", FLOAT, ir.Shape(("batch", "source_len", 3 * width)))
    lengths = ir.val("lengths", INT32, ir.Shape(("batch",)))
    tape = ir.tape.Tape()
    parts = tape.op_multi_out("Split", [packed], {"axis": -1, "num_outputs": 3}, num_outputs=3)
    for part in parts:
        part.shape = ir.Shape(("batch", "source_len", width))
    attributes = {"num_heads": heads}
    y = tape.op("MultiHeadAttention", [*parts, None, lengths], attributes, domain=MICROSOFT)
    return model_of([packed, lengths], tape, y)


def model_of(inputs: list[ir.Value], tape: ir.tape.Tape, y: ir.Value) -> ir.Model:
    y.name, y.type = "y", ir.TensorType(FLOAT)
    graph = ir.Graph(inputs, [y], nodes=tape.nodes, opset_imports={"": 21, MICROSOFT: 1}, name="attention")
    model = ir.Model(graph, ir_version=10)
    Sequential(OwnSourceAttention(), RemoveUnusedNodesPass())(model)
    assert {node.domain for node in model.graph} == {"edgeformer"}
    return model


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def sources(lengths: list[int], rows_each: int, q_len: int, heads: int, head_dim: int) -> dict[str, Array]:
    count, longest, width = len(lengths), max(lengths) + 2, heads * head_dim
    return {
        "query": random(count * rows_each, q_len, width),
        "key": random(count, heads, longest, head_dim),
        "value": random(count, heads, longest, head_dim) + 1,
        "lengths": np.array(lengths, np.int32),
        names.SOURCE_SHAPE: np.array([count, rows_each * q_len, width]),
        names.ROW_SHAPE: np.array([count * rows_each, q_len, width]),
    }


@pytest.mark.parametrize(("heads", "head_dim"), SIZES)
@pytest.mark.parametrize(
    ("lengths", "rows_each", "q_len"), [([9], 1, 1), ([7, 1, 300], 1, 3), ([5, 12], 4, 1), ([129], 3, 40)]
)
def test_tokens_attend_to_their_sources(
    heads: int, head_dim: int, lengths: list[int], rows_each: int, q_len: int
) -> None:
    model, given = over_source(heads, head_dim), sources(lengths, rows_each, q_len, heads, head_dim)
    np.testing.assert_allclose(*(run(model, given, own)[0] for own in (True, False)), rtol=0, atol=2e-5)


def test_a_scale_is_kept() -> None:
    model, given = over_source(4, 64, scale=1.0), sources([9, 30], 2, 1, 4, 64)
    found, expected = (run(model, given, own)[0] for own in (True, False))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    usual = run(over_source(4, 64), given, own=True)[0]
    assert np.abs(found - usual).max() > 0.1


@pytest.mark.parametrize(("heads", "head_dim"), SIZES)
@pytest.mark.parametrize("lengths", [[9], [7, 1, 300], [130, 128, 127]])
def test_a_source_attends_to_itself(heads: int, head_dim: int, lengths: list[int]) -> None:
    model, longest = over_itself(heads, head_dim), max(lengths)
    given = {"packed": random(len(lengths), longest, 3 * heads * head_dim), "lengths": np.array(lengths, np.int32)}
    found, expected = (run(model, given, own)[0] for own in (True, False))
    for row, length in enumerate(lengths):  # what stands behind a source's end is nobody's
        np.testing.assert_allclose(found[row, :length], expected[row, :length], rtol=0, atol=2e-5)


def test_what_stands_behind_a_sources_end_changes_no_bit() -> None:
    model = over_itself(4, 64)
    given = {"packed": random(2, 50, 768), "lengths": np.array([50, 20], np.int32)}
    alone = {"packed": given["packed"][1:, :20].copy(), "lengths": given["lengths"][1:]}
    np.testing.assert_array_equal(run(model, given, own=True)[0][1, :20], run(model, alone, own=True)[0][0])


def test_a_source_of_no_tokens_gives_zeros() -> None:
    given = sources([3, 4], 1, 1, 4, 64) | {"lengths": np.array([0, 4], np.int32)}
    found = run(over_source(4, 64), given, own=True)[0]
    assert not found[0].any()
    assert found[1].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": np.array([3, 9], np.int32)}, "a source is longer than its keys"),
        ({"lengths": np.array([-1, 4], np.int32)}, "a source is longer than its keys"),
        ({"query": random(3, 1, 256)}, "as many rows for each source"),
        ({"query": random(2, 1, 128)}, "query must be"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(change: dict[str, Array], message: str) -> None:
    model = over_source(4, 64)
    model.graph.inputs[0].shape = ir.Shape(("rows", "q_len", "width"))
    with pytest.raises(Exception, match=message):
        run(model, sources([3, 4], 1, 1, 4, 64) | change, own=True)


@pytest.mark.parametrize(("width", "order"), [(12, (0, 1, 2)), (32, (1, 0, 2))])
def test_what_does_not_fit_stays_with_onnx_runtime(width: int, order: tuple[int, ...]) -> None:
    """Heads of an odd width, and parts of a product in another order."""
    packed, lengths = ir.val("packed", FLOAT, ir.Shape(("batch", "len", 3 * width))), ir.val("lengths", INT32)
    tape = ir.tape.Tape()
    parts = tape.op_multi_out("Split", [packed], {"axis": -1, "num_outputs": 3}, num_outputs=3)
    for part in parts:
        part.shape = ir.Shape(("batch", "len", width))
    inputs = [*(parts[i] for i in order), None, lengths]
    y = tape.op("MultiHeadAttention", inputs, {"num_heads": 1}, domain=MICROSOFT)
    graph = ir.Graph([packed, lengths], [y], nodes=tape.nodes, opset_imports={"": 21, MICROSOFT: 1})
    assert not OwnSourceAttention()(ir.Model(graph, ir_version=10)).modified
