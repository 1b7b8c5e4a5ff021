"""One engine from one graph, by TensorRT for RTX, which needs no GPU for it."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeformer.exporter.tensorrt import building, timing
from edgeformer.exporter.tensorrt.building import build, network_flags
from edgeformer.exporter.tensorrt.report import LogLine, build_from_values
from edgeformer.exporter.tensorrt.requests import BuildRequest
from edgeformer.runtime.errors import BuildError

SHAPES = {"x": ((1, 64), (2, 64), (8, 64))}


@pytest.fixture(scope="module")
def trt() -> Any:
    return importlib.import_module("tensorrt_rtx")


def save(path: Path, operator: str = "MatMul", domain: str = "") -> None:
    """One product with a matrix that stands in a file beside the graph."""
    weight = numpy_helper.from_array(np.eye(64, dtype=np.float16), "w")
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "w"], ["y"], name="projection", domain=domain)],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, ["batch", 64])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("edgeformer", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save(model, path, save_as_external_data=True, location="weights.data", size_threshold=0)


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    save(tmp_path / "encoder.onnx")
    return BuildRequest(
        "tensorrt_rtx", "encoder", str(tmp_path / "encoder.onnx"), str(tmp_path / "encoder.plan"), (SHAPES,),
        ({"batch": (1, 2, 8)},), ("8.9",), workspace=1 << 28, opt_level=1,
    )  # fmt: skip


def run(trt: Any, request: BuildRequest, report: Any = lambda fraction, phase: True) -> Any:
    return build(trt, trt.__version__, request, report)


def test_a_graph_is_built_with_the_weights_beside_it_and_described(trt: Any, request_: BuildRequest) -> None:
    seen: list[float] = []
    built = run(trt, request_, lambda fraction, phase: seen.append(fraction) or True)
    report = build_from_values(built.report)
    assert report.plan_bytes == Path(request_.plan).stat().st_size > 64 * 64 * 2
    assert report.memory["build peak"] == built.peak > 100 << 20
    assert report.settings["compute capabilities"] == "8.9"
    assert report.settings["optimization level"] == "1"
    assert report.unused_inputs == ()
    assert seen == sorted(seen)
    assert 0 <= seen[0] <= seen[-1] <= 1


def test_a_request_survives_the_way_to_another_process(request_: BuildRequest) -> None:
    there = BuildRequest.from_json(request_.to_json())
    assert dataclasses.replace(there, shapes=(), profiles=()) == dataclasses.replace(request_, shapes=(), profiles=())
    assert [dict(shapes) for shapes in there.shapes] == [{"x": [[1, 64], [2, 64], [8, 64]]}]


def test_an_operator_that_tensorrt_does_not_know_is_named(trt: Any, request_: BuildRequest) -> None:
    save(Path(request_.graph), "CachedAttention", "edgeformer")
    with pytest.raises(BuildError, match="cannot parse the encoder's graph: projection \\(CachedAttention\\): "):
        run(trt, request_)
    assert not Path(request_.plan).exists()


def test_a_graph_whose_weights_are_gone_is_refused(trt: Any, request_: BuildRequest) -> None:
    Path(request_.graph).with_name("weights.data").unlink()
    with pytest.raises(BuildError, match="cannot parse the encoder's graph: .* initializer: w"):
        run(trt, request_)


def test_a_gpu_that_the_module_does_not_know_is_refused_with_those_that_it_does(
    trt: Any, request_: BuildRequest
) -> None:
    with pytest.raises(BuildError, match="compute capability 8.7 is unknown to it; it knows: .* 8.9, .*12.0"):
        run(trt, dataclasses.replace(request_, compute_capabilities=("8.9", "8.7")))


def test_a_monitor_that_says_stop_ends_the_build(trt: Any, request_: BuildRequest) -> None:
    with pytest.raises(BuildError, match="tensorrt_rtx built no encoder"):
        run(trt, request_, lambda fraction, phase: False)
    assert not Path(request_.plan).exists()


def test_a_full_disk_is_told_by_the_system(trt: Any, request_: BuildRequest) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        run(trt, dataclasses.replace(request_, plan="/dev/full"))


def test_types_come_from_the_graph_whatever_the_version(trt: Any, request_: BuildRequest) -> None:
    fake: Any = SimpleNamespace(NetworkDefinitionCreationFlag=SimpleNamespace(STRONGLY_TYPED=1))
    full = dataclasses.replace(request_, module="tensorrt")
    assert network_flags(fake, full, "10.3.0.26") == 2
    assert network_flags(fake, full, "11.4.0.106") == 0
    assert network_flags(trt, request_, trt.__version__) == 0


def test_a_builder_that_there_is_none_of_is_one_line() -> None:
    def refuse(logger: object) -> None:
        raise TypeError("pybind11::init(): factory function returned nullptr")

    lines = [LogLine("error", "CUDA initialization failure with error: 35"), LogLine("info", "end")]
    fake: Any = SimpleNamespace(Builder=refuse)
    with pytest.raises(BuildError, match="TensorRT has no builder here: CUDA initialization failure with error: 35"):
        building.make_builder(fake, SimpleNamespace(), lines)  # type: ignore[arg-type]


class Config:
    """A builder's configuration that takes timings of its own GPU only."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def create_timing_cache(self, content: bytes) -> Any:
        return SimpleNamespace(content=content, serialize=lambda: content + b" and more")

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        self.taken.append(cache.content)
        return not ignore_mismatch and cache.content != b"another GPU's"


def test_timings_are_read_from_their_file_and_written_back(tmp_path: Path) -> None:
    path, lines = tmp_path / "timings", list[LogLine]()
    for expected in (b" and more", b" and more and more"):
        timing.save_timings(timing.load_timings(Config(), str(path), lines), str(path))  # type: ignore[arg-type]
        assert path.read_bytes() == expected
    assert lines == []
    assert list(tmp_path.iterdir()) == [path]


def test_timings_of_another_gpu_are_left_unread_and_said_so(tmp_path: Path) -> None:
    path, lines, config = tmp_path / "timings", list[LogLine](), Config()
    path.write_bytes(b"another GPU's")
    cache = timing.load_timings(config, str(path), lines)  # type: ignore[arg-type]
    assert config.taken == [b"another GPU's", b""]
    assert "of another GPU or version: begun anew" in lines[0].text
    timing.save_timings(cache, str(path))
    assert path.read_bytes() == b" and more"


def test_without_a_file_no_timings_are_kept() -> None:
    config = Config()
    assert timing.load_timings(config, None, []) is None  # type: ignore[arg-type]
    assert config.taken == []
