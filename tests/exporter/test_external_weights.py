"""Both graphs share one file of weights, in which no tensor stands twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgeformer.exporter.external_weights import INLINE_BYTES, save_graphs

from .graphs import encoder_inputs, read, run

ARTIFACTS = ("onnx", "ort-cpu-fp32", "ort-cpu-int8")


def weights(bundle: Path, artifact: str) -> list[ir.TensorProtocol]:
    """Every initializer of both graphs, as it stands on disk."""
    tensors = []
    for role in ("encoder", "decoder"):
        model = ir.load(bundle / artifact / f"{role}.onnx")
        tensors += [value.const_value for value in model.graph.initializers.values()]
    assert all(tensor is not None for tensor in tensors)
    return tensors  # type: ignore[return-value]


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_every_large_tensor_stands_in_the_one_file(tiny_bundle: Path, artifact: str) -> None:
    assert sorted(path.name for path in (tiny_bundle / artifact).iterdir()) == [
        "decoder.onnx", "encoder.onnx", "weights.data",
    ]  # fmt: skip
    for tensor in weights(tiny_bundle, artifact):
        assert isinstance(tensor, ir.ExternalTensor) == (tensor.nbytes >= INLINE_BYTES), tensor.name
        if isinstance(tensor, ir.ExternalTensor):
            assert str(tensor.location) == "weights.data"  # beside the graph, so that the folder can be moved


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_no_tensor_stands_twice_and_nothing_else_is_in_the_file(tiny_bundle: Path, artifact: str) -> None:
    stored = {(t.offset, t.nbytes): t for t in weights(tiny_bundle, artifact) if isinstance(t, ir.ExternalTensor)}
    contents = {(tensor.dtype, tensor.tobytes()) for tensor in stored.values()}
    assert len(contents) == len(stored)
    assert sum(size for _, size in stored) == (tiny_bundle / artifact / "weights.data").stat().st_size


def test_the_graphs_share_what_both_use(tiny_bundle: Path) -> None:
    used = [
        {
            (tensor.offset, tensor.nbytes)
            for value in ir.load(tiny_bundle / "onnx" / f"{role}.onnx").graph.initializers.values()
            if isinstance(tensor := value.const_value, ir.ExternalTensor)
        }
        for role in ("encoder", "decoder")
    ]
    assert len(used[0] & used[1]) == 2  # the embeddings and the positions


def test_equal_bytes_of_another_shape_are_stored_once_and_of_another_type_twice(tmp_path: Path) -> None:
    arrays = {
        "ones": np.ones(1024, np.int32),
        "the same": np.ones(1024, np.int32),
        "folded": np.ones((32, 32), np.int32),
        "halved": np.frombuffer(np.ones(1024, np.int32).tobytes(), np.float32),
        "small": np.ones(255, np.int32),
    }
    values = [ir.val(name, const_value=ir.tensor(array, name=name)) for name, array in arrays.items()]
    graph = ir.Graph([], [], nodes=[], initializers=values, opset_imports={"": 24}, name="graph")
    save_graphs(tmp_path, {"encoder": ir.Model(graph, ir_version=10)})
    assert (tmp_path / "weights.data").stat().st_size == 2 * 4096
    loaded = ir.load(tmp_path / "encoder.onnx").graph.initializers
    for name, array in arrays.items():
        tensor = loaded[name].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), array)
        assert tensor.numpy().dtype == array.dtype


def test_a_saved_graph_computes_what_it_computed(tiny_bundle: Path, tmp_path: Path) -> None:
    model, given = read(tiny_bundle, "encoder"), encoder_inputs(2, 5)
    expected = run(model, given)
    (tmp_path / "onnx").mkdir()
    save_graphs(tmp_path / "onnx", {"encoder": model})
    for name, array in run(read(tmp_path, "encoder"), given).items():
        np.testing.assert_array_equal(array, expected[name])
