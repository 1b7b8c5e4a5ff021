"""Sums and their norms by our own operators, beside ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import Sequential
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.ort_cpu.own_norms import OPERATORS, OwnNorms
from edgeformer.runtime import native

from .native_sessions import Array, run

pytestmark = pytest.mark.skipif(native.instructions() is None, reason=f"own operators: {native.unused()}")

FLOAT = ir.DataType.FLOAT
LAYER, RMS = OPERATORS
ALIKE = (("batch", "len"), ("batch", "len"))


def normed(
    norm: str, width: int, shapes: tuple[tuple[str, ...], tuple[str, ...]] = ALIKE, epsilon: float = 1e-5
) -> ir.Model:
    """x, residual (..., width) -> the norm of their sum, y, and twice the sum."""
    x, residual = (
        ir.val(name, FLOAT, ir.Shape((*shape, width))) for name, shape in zip(("x", "residual"), shapes, strict=True)
    )
    rng = np.random.default_rng(width)
    count = 2 if norm == LAYER else 1
    weights = [
        ir.val(name, const_value=ir.tensor(rng.normal(size=width).astype(np.float32), name=name)) for name in "wb"
    ]
    tape = ir.tape.Tape()
    total = tape.op("Add", [x, residual])
    attributes = {"axis": -1, "epsilon": epsilon, "stash_type": 1}
    y, twice = tape.op(norm, [total, *weights[:count]], attributes), tape.op("Add", [total, total])
    for name, value in (("y", y), ("twice", twice)):
        value.name, value.type = name, ir.TensorType(FLOAT)
    graph = ir.Graph(
        [x, residual], [y, twice], nodes=tape.nodes, initializers=weights[:count], opset_imports={"": 21}, name="norm"
    )
    return ir.Model(graph, ir_version=10)


def values(*shape: int) -> Array:
    return (np.random.default_rng(len(shape)).normal(size=shape) * 3 + 1).astype(np.float32)


@pytest.mark.parametrize("norm", OPERATORS)
@pytest.mark.parametrize(
    ("batch", "length", "width"), [(1, 1, 8), (3, 1, 256), (2, 40, 576), (1, 600, 1024), (0, 3, 8)]
)
def test_a_norm_of_a_sum_is_that_of_onnx_runtime(norm: str, batch: int, length: int, width: int) -> None:
    model = normed(norm, width, epsilon=1e-3)
    assert Sequential(OwnNorms(), RemoveUnusedNodesPass())(model).modified
    assert [node.op_type for node in model.graph if node.domain == "edgeformer"] == [OPERATORS[norm]]
    given = {"x": values(batch, length, width), "residual": values(width, batch, length).transpose(1, 2, 0).copy()}
    found, expected = (run(model, given, own) for own in (True, False))
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=5e-6)
    np.testing.assert_array_equal(found[1], expected[1])


def test_a_row_is_what_it_is_alone() -> None:
    model = normed(LAYER, 256)
    Sequential(OwnNorms(), RemoveUnusedNodesPass())(model)
    given = {"x": values(5, 7, 256), "residual": values(5, 7, 256) * 2}
    together = run(model, given, own=True)[0]
    alone = run(model, {name: array[3:4, 2:3] for name, array in given.items()}, own=True)[0]
    np.testing.assert_array_equal(alone[0, 0], together[3, 2])


@pytest.mark.parametrize(
    ("width", "shapes"), [(12, ALIKE), (16, (("batch", "len"), ("1", "len"))), (16, (("batch", "len"), ("len",)))]
)
def test_sums_that_do_not_fit_stay_with_onnx_runtime(width: int, shapes: tuple[tuple[str, ...], ...]) -> None:
    """An odd width; shapes that are not known to be the same, one of which is repeated for the other."""
    assert not OwnNorms()(normed(LAYER, width, shapes)).modified  # type: ignore[arg-type]


def test_values_of_other_shapes_are_refused() -> None:
    model = normed(LAYER, 16)
    Sequential(OwnNorms(), RemoveUnusedNodesPass())(model)
    with pytest.raises(Exception, match="x and residual must have the same shape"):
        run(model, {"x": values(2, 3, 16), "residual": values(1, 3, 16)}, own=True)
