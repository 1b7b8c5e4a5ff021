"""Gated layers by our own operator, beside ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import Sequential
from onnx_ir.passes.common import RemoveUnusedNodesPass

from edgeformer.exporter.ort_cpu.own_gates import OwnGates
from edgeformer.runtime import native

from .native_sessions import MICROSOFT, run

pytestmark = pytest.mark.skipif(native.instructions() is None, reason=f"own operators: {native.unused()}")

FLOAT = ir.DataType.FLOAT


def gated(width: int, *, gate: int = 0, turned: bool = False, alpha: float = 1.0) -> ir.Model:
    """packed (batch, len, 2 * width) -> y (batch, len, width), gated by the half of that number."""
    packed = ir.val("packed", FLOAT, ir.Shape(("batch", "len", 2 * width)))
    tape = ir.tape.Tape()
    halves = tape.op_multi_out("Split", [packed], {"axis": -1, "num_outputs": 2}, num_outputs=2)
    for half in halves:
        half.shape = ir.Shape(("batch", "len", width))
    factors = [tape.op("QuickGelu", [halves[gate]], {"alpha": alpha}, domain=MICROSOFT), halves[1 - gate]]
    y = tape.op("Mul", factors[::-1] if turned else factors)
    y.name, y.type, y.shape = "y", ir.TensorType(FLOAT), ir.Shape(("batch", "len", width))
    graph = ir.Graph([packed], [y], nodes=tape.nodes, opset_imports={"": 21, MICROSOFT: 1}, name="gated")
    return ir.Model(graph, ir_version=10)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("batch", "length", "width"), [(1, 1, 8), (2, 3, 24), (1, 1, 1536), (2, 70, 1536), (0, 2, 16)])
def test_a_gated_half_is_that_of_onnx_runtime(batch: int, length: int, width: int, turned: bool) -> None:
    model = gated(width, turned=turned)
    Sequential(OwnGates(), RemoveUnusedNodesPass())(model)
    assert [node.op_type for node in model.graph] == ["SwiGLU"]
    x = (np.random.default_rng(width).normal(size=(batch, length, 2 * width)) * 20).astype(np.float32)
    x.reshape(-1)[:4] = [0, -0.0, -200, 200][: x.size]
    found, function = (run(model, {"packed": x}, own)[0] for own in (True, False))
    gate, value = (half.astype(np.float64) for half in np.split(x, 2, axis=-1))
    np.testing.assert_allclose(found, gate / (1 + np.exp(-gate)) * value, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(function, found, rtol=1e-4, atol=5e-4)  # its sigmoid is an approximation


@pytest.mark.parametrize(("width", "options"), [(12, {}), (16, {"gate": 1}), (16, {"alpha": 1.702})])
def test_gates_that_do_not_fit_stay_with_onnx_runtime(width: int, options: dict[str, float]) -> None:
    assert not OwnGates()(gated(width, **options)).modified  # type: ignore[arg-type]
