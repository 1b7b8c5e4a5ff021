"""Products in float32 by our own operator, beside numpy in float64 and ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import Sequential
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.ort_cpu.own_panels import OwnPanels
from edgeformer.exporter.ort_cpu.own_relus import OwnRelus
from edgeformer.runtime import native

from .native_sessions import Array, run

pytestmark = pytest.mark.skipif(native.instructions() is None, reason=f"own operators: {native.unused()}")


def product(k: int, n: int, *, bias: bool = True, relu: bool = False) -> tuple[ir.Model, Array, Array]:
    """x (rows, k) -> y (rows, n), with weight and bias."""
    rng = np.random.default_rng(k + n)
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(("rows", k)))
    arrays = rng.normal(size=(k, n)).astype(np.float32), rng.normal(size=n).astype(np.float32) * bias
    weight, of_columns = (
        ir.val(name, const_value=ir.tensor(array, name=name)) for name, array in zip("wb", arrays, strict=True)
    )
    tape = ir.tape.Tape()
    y = tape.op("MatMul", [x, weight])
    y = tape.op("Add", [y, of_columns]) if bias else y
    y = tape.op("Relu", [y]) if relu else y
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(("rows", n))
    values = [weight, of_columns] if bias else [weight]
    graph = ir.Graph([x], [y], nodes=tape.nodes, initializers=values, opset_imports={"": 21}, name="product")
    return ir.Model(graph, ir_version=10), *arrays


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 6, 7, 13, 48, 49, 301])
@pytest.mark.parametrize(
    ("k", "n", "options"),
    [(1, 64, {}), (33, 128, {"bias": False}), (256, 768, {"relu": True}), (576, 192, {}), (1000, 64, {"relu": True})],
)
def test_a_product_is_that_of_numpy(rows: int, k: int, n: int, options: dict[str, bool]) -> None:
    model, weight, bias = product(k, n, **options)
    Sequential(OwnPanels(), OwnRelus(), RemoveUnusedNodesPass())(model)
    name = "PanelMatMulRelu" if options.get("relu") else "PanelMatMul"
    assert [node.op_type for node in model.graph] == [name]
    x = np.random.default_rng(rows).normal(size=(rows, k)).astype(np.float32)
    expected = x.astype(np.float64) @ weight + bias
    expected = np.maximum(expected, 0) if options.get("relu") else expected
    for own in (True, False):
        np.testing.assert_allclose(run(model, {"x": x}, own)[0], expected, rtol=0, atol=1e-6 * k**0.5 * 8)


def test_a_row_is_what_it_is_alone() -> None:
    model, *_ = product(576, 256)
    Sequential(OwnPanels(), RemoveUnusedNodesPass())(model)
    x = np.random.default_rng(0).normal(size=(53, 576)).astype(np.float32)
    together = run(model, {"x": x}, own=True)[0]
    for row in (0, 5, 47, 48, 52):
        np.testing.assert_array_equal(run(model, {"x": x[row : row + 1]}, own=True)[0][0], together[row])


def test_columns_that_fill_no_panel_stay_with_onnx_runtime() -> None:
    assert not OwnPanels()(product(64, 96)[0]).modified


def test_an_input_of_another_width_is_refused() -> None:
    model, *_ = product(64, 64)
    Sequential(OwnPanels(), RemoveUnusedNodesPass())(model)
    model.graph.inputs[0].shape = ir.Shape(("rows", "k"))
    with pytest.raises(Exception, match="PanelMatMul: x is not as wide as the weight"):
        run(model, {"x": np.ones((2, 65), np.float32)}, own=True)
