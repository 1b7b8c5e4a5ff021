"""ONNX Runtime on GPUs: everything but its CUDA kernels, with the same buffers on the CPU."""

from __future__ import annotations

import ctypes
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.backends import lacking, onnxruntime_cuda
from edgeformer.runtime.backends.onnxruntime_cuda import CudaExecutor, OnnxRuntimeCuda, why_no_gpu
from edgeformer.runtime.backends.onnxruntime_frames import Frame
from edgeformer.runtime.bundle import open_bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.errors import BackendUnavailableError

NAME = "ort-cuda-fp16"


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny bundle with an artifact for ort-cuda."""
    folder = shutil.copytree(tiny_bundle, tmp_path_factory.mktemp("cuda") / "bundle")
    optimize_bundle(folder, "ort-cuda")
    return folder


@pytest.fixture(scope="module")
def on_device(bundle: Path) -> Model:
    """The artifact with its caches in ONNX Runtime's buffers, on the CPU."""
    model = load(bundle, "ort-cpu-fp32", threads=1)
    artifact = open_bundle(bundle).artifact(NAME)
    assert artifact is not None
    model.artifact, model.executor = artifact, CudaExecutor(model.bundle, artifact, Cores(1), device="cpu")
    return model


@pytest.fixture(scope="module")
def on_cpu(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The artifact with its caches in arrays of the host."""
    folder = shutil.copytree(bundle, tmp_path_factory.mktemp("cpu") / "bundle")
    manifest = json.loads((folder / "bundle.json").read_text())
    (artifact,) = [artifact for artifact in manifest["artifacts"] if artifact["name"] == NAME]
    artifact["backend"] = "ort-cpu"
    (folder / "bundle.json").write_text(json.dumps(manifest))
    return load(folder, NAME, threads=1)


def results(model: Model, words: Sequence[str], **options: Any) -> list[tuple[tuple[int, ...], float]]:
    found = model.generate(words, GenerationConfig(**options), batch_size=8)
    return [(hypothesis.token_ids, hypothesis.score) for generation in found for hypothesis in generation.hypotheses]


@pytest.mark.parametrize("options", [{}, {"num_beams": 4}, {"num_beams": 3, "num_return_sequences": 3}], ids=str)
@pytest.mark.parametrize("first_capacity", [64, 2])
def test_buffers_on_a_device_give_what_arrays_of_the_host_give(
    on_device: Model,
    on_cpu: Model,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    options: Any,
    first_capacity: int,
) -> None:
    monkeypatch.setattr(onnxruntime_cuda, "FIRST_CAPACITY", first_capacity)
    found, expected = (results(model, words[:16], **options) for model in (on_device, on_cpu))
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-4)


def test_caches_are_16_bits_wide_and_logits_32(on_device: Model) -> None:
    with on_device.session(["abc", "z"]) as session:
        logits = session.step([[1], [1]])
        assert logits.dtype == np.float32
        assert {value.element_type() for value in session.rows.caches} == {10}  # type: ignore[attr-defined]


def test_steps_of_several_tokens_over_filled_caches_give_the_steps_of_one(on_device: Model) -> None:
    with on_device.session(["abc", "zz"]) as one, on_device.session(["abc", "zz"]) as several:
        first = [one.step([[a], [b]])[:, 0] for a, b in ((1, 1), (30, 41), (35, 44), (31, 47))]
        begin = several.step([[1], [1]])[:, 0]
        rest = several.step([[30, 35, 31], [41, 44, 47]], logits_at=[[0, 1, 2]] * 2)
        np.testing.assert_allclose([begin, *rest.swapaxes(0, 1)], first, atol=5e-3)


def test_rows_and_sources_are_picked_on_the_device(on_device: Model) -> None:
    rows = on_device.executor.start([[3, 2], [5, 6, 2], [4, 2]], 8)
    rows.step(np.array([[1], [1], [1]]))
    expected = [rows.step(np.array([[30], [31], [32]])).copy()]
    rows.select(np.array([2, 0]), np.array([2, 0]))
    assert rows.cache_lengths.tolist() == [2, 2]
    alone = on_device.executor.start([[4, 2], [3, 2]], 8)
    alone.step(np.array([[1], [1]]))
    np.testing.assert_allclose(alone.step(np.array([[32], [30]])), expected[0][[2, 0]], atol=5e-3)
    given = np.array([[40], [41]])
    np.testing.assert_allclose(rows.step(given), alone.step(given), atol=5e-3)
    rows.close()
    alone.close()


def test_a_gpu_is_given_what_the_arrays_hold_at_each_step(on_device: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = on_device.executor
    assert isinstance(executor, CudaExecutor)
    monkeypatch.setattr(executor, "device", "cuda")  # its sessions are on the CPU all the same
    frame = Frame(executor, (1, 1, 1, 1))
    bound: list[list[int]] = []
    original = frame.binding.inputs

    def inputs(values: Any) -> None:
        bound.append(values["input_ids"].ravel().tolist())
        original(values)

    monkeypatch.setattr(frame.binding, "inputs", inputs)
    monkeypatch.setattr(frame.binding, "run", lambda: None)
    for token in (7, 8):
        frame.ids[...] = token
        frame.run()
    assert bound == [[7], [8]]


def test_rows_that_grow_beyond_what_was_asked_for_are_refused(on_device: Model) -> None:
    rows = on_device.executor.start([[3, 2]], 2)
    rows.step(np.array([[1, 30]]))
    with pytest.raises(ValueError, match="a row would hold 3 tokens; 2 were asked for"):
        rows.step(np.array([[31]]))


# What is missing


def test_without_a_gpu_the_artifact_is_passed_over_with_the_reason(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime_cuda, "has_cuda_provider", lambda: False)
    model = load(bundle)
    assert model.artifact.name == "ort-cpu-fp32"
    assert model.passed_over[NAME] == onnxruntime_cuda.WITHOUT_CUDA
    with pytest.raises(BackendUnavailableError, match=f"{NAME} cannot run here: the onnxruntime here is built"):
        load(bundle, NAME)


class Driver:
    """A CUDA driver that gives these answers."""

    def __init__(self, status: int, count: int) -> None:
        self.status, self.count = status, count

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self.count
        return 0


@pytest.mark.parametrize(("status", "count", "runs"), [(0, 1, True), (0, 0, False), (100, 1, False)])
def test_the_driver_is_asked_for_a_gpu(monkeypatch: pytest.MonkeyPatch, status: int, count: int, runs: bool) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(status, count))
    assert why_no_gpu() == (None if runs else onnxruntime_cuda.NO_GPU)


def test_each_thing_that_is_missing_is_one_line(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver(name: str) -> None:
        raise OSError(name)

    backend = OnnxRuntimeCuda()
    artifact = open_bundle(bundle).artifact(NAME)
    monkeypatch.setattr(onnxruntime_cuda, "has_cuda_provider", lambda: True)
    monkeypatch.setattr(ctypes, "CDLL", no_driver)
    assert backend.unavailable(artifact) == onnxruntime_cuda.NO_DRIVER
    monkeypatch.setattr(onnxruntime_cuda, "installed_version", lambda: "1.2")
    assert "onnxruntime 1.23, 1.2 is installed; pip install 'onnxruntime-gpu>=1.23'" in str(
        backend.unavailable(artifact)
    )
    monkeypatch.setattr(onnxruntime_cuda, "find_spec", lambda name: None)
    assert backend.unavailable() == "onnxruntime-gpu is not installed; pip install 'edgeformer[gpu]'"


def test_a_provider_that_does_not_start_is_passed_over_when_it_is_loaded(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnnxRuntimeCuda, "unavailable", lambda self, artifact=None: None)
    monkeypatch.setattr("edgeformer.runtime.memory_plan.require", lambda plan: None)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [onnxruntime_cuda.CUDA])
    monkeypatch.setattr(onnxruntime_cuda, "providers_of", lambda device: ["CPUExecutionProvider"])
    assert lacking(next(a for a in open_bundle(bundle).manifest.artifacts if a.name == NAME)) is None
    model = load(bundle)
    assert model.artifact.name == "ort-cpu-fp32"
    assert model.passed_over[NAME] == onnxruntime_cuda.NOT_STARTED
