"""The weights of graphs, read without onnx, against onnx."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from edgeformer.cli.benching.ceilings import Ceilings, shares
from edgeformer.cli.benching.graph_weights import Weights, weights_of
from edgeformer.cli.benching.grid import Cell
from edgeformer.cli.benching.work import Work, first_work, role_weights, step_work
from edgeformer.runtime import GenerationConfig, load


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A table to look up in, a matrix of 29 tokens and one of none, and a bias."""
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    tensors = {
        "table": np.zeros((29, 8), np.float32),
        "head": np.zeros((8, 29), np.float16),
        "inner": np.zeros((8, 8), np.int8),
        "bias": np.zeros(29, np.float32),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["looked"]),
        helper.make_node("MatMul", ["looked", "inner"], ["turned"]),
        helper.make_node("MatMul", ["turned", "head"], ["scores"]),
        helper.make_node("Add", ["scores", "bias"], ["out"]),
    ]
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["n", 29])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    path = tmp_path / "graph.onnx"
    onnx.save(helper.make_model(made), path)
    return path


def test_what_is_computed_with_is_counted(graph: Path) -> None:
    # The table is only looked up in; the bias has bytes and is multiplied with nothing.
    assert weights_of(graph, 29) == Weights(bytes=8 * 29 * 2 + 64 + 29 * 4, count=8 * 29 + 64, head=8 * 29)


@pytest.mark.parametrize("content", [b"\x0a\x7fabc", b"\xff\xff\xff", b"\x3b", b"\x38\x80"])
def test_what_is_no_graph_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="beyond|wire type|expected a message"):
        weights_of(path, 29)


def test_a_bundle_has_the_weights_that_onnx_sees(tiny_bundle: Path) -> None:
    import onnx

    model = load(tiny_bundle, "onnx", threads=1)
    found = role_weights(model.bundle, model.artifact)
    for role, path in model.artifact.graphs.items():
        proto = onnx.load(str(tiny_bundle / path), load_external_data=False).graph
        used = {name for node in proto.node for name in node.input[node.op_type == "Gather" :]}
        matrices = [t for t in proto.initializer if t.name in used and len(t.dims) > 1]
        assert found[role].count == sum(math.prod(t.dims) for t in matrices) > 1000
        assert found[role].bytes >= 4 * found[role].count


def test_work_of_steps_and_of_first_tokens(tiny_bundle: Path) -> None:
    model = load(tiny_bundle, "onnx", threads=1)
    sizes = model.sizes
    weights = {"encoder": Weights(400, 100, 0), "decoder": Weights(4000, 1000, 200)}
    config = GenerationConfig(num_beams=2, min_new_tokens=6, max_new_tokens=6)
    cell = Cell(4, 10, config)
    step = step_work(model.bundle, model.artifact, weights, cell, 6.0)
    assert step is not None
    caches = 2 * sizes.num_layers * sizes.num_kv_heads * sizes.head_dim * 4 * (4 * 2) * (10 + 3)
    assert step == Work(4000 + caches, 4000, 2 * 1000 * 8)
    assert first_work(weights, cell) == Work(4400, 4400, 2 * (100 * 40 + 1000 * 8))
    # A language model computes the vocabulary for the last token alone.
    assert first_work({"decoder": weights["decoder"]}, cell) == Work(4000, 4000, 2 * (800 * 40 + 200 * 4))
    assert first_work(weights, Cell(4, None, config)) is None
    assert step_work(model.bundle, model.artifact, {}, cell, 6.0) is None


def test_shares_are_of_the_ceiling_for_as_many_bytes() -> None:
    ceilings = Ceilings(1, {1000: 4e9, 10**9: 1e9}, 1e10)
    found = shares(Work(1500, 1200, 3000), 1e-6, ceilings)
    assert isinstance(found, dict)
    assert found["bandwidth_share"] == pytest.approx(1500 / 1e-6 / 4e9)
    assert found["compute_share"] == pytest.approx(3000 / 1e-6 / 1e10)
    for lacking in ((None, 1e-6, ceilings), (Work(1, 1, 1), None, ceilings), (Work(1, 1, 1), 1e-6, None)):
        assert shares(*lacking) == "not supported"
