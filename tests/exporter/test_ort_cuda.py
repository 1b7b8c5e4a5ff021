"""Graphs for ONNX Runtime on GPUs: in 16 bits, checked on the CPU, and refused where they cannot be."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import PassError, PreconditionError

from edgeformer.exporter import ort_cuda
from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.ort_cuda import rewrite, selection
from edgeformer.exporter.ort_cuda.half_precision import HalfPrecision
from edgeformer.exporter.parity import Check
from edgeformer.runtime import names
from edgeformer.runtime.backends import onnxruntime_cuda
from edgeformer.runtime.bundle import open_bundle, read_manifest
from edgeformer.runtime.errors import ParityError

from .families import MODULES
from .graphs import read, run


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle to change, where there is no GPU."""
    monkeypatch.setattr(onnxruntime_cuda, "has_cuda_provider", lambda: False)
    return shutil.copytree(tiny_bundle, tmp_path / "bundle")


@pytest.mark.parametrize("role", ["encoder", "decoder"])
def test_only_logits_are_in_32_bits(tiny_bundle: Path, role: str) -> None:
    graph = read(tiny_bundle, role)
    rewrite(graph)
    values = [*graph.graph.inputs, *graph.graph.outputs, *graph.graph.initializers.values()]
    assert {value.name for value in values if value.dtype == ir.DataType.FLOAT} <= {names.LOGITS}
    assert {value.dtype for value in values} >= {ir.DataType.FLOAT16}
    outputs = [value.name for value in graph.graph.outputs]
    assert (names.LOGITS in outputs) is (role == "decoder")


def test_weights_that_16_bits_cannot_hold_are_refused(tiny_bundle: Path) -> None:
    graph = read(tiny_bundle, "encoder")
    value = next(v for v in graph.graph.initializers.values() if v.dtype == ir.DataType.FLOAT)
    assert value.const_value is not None
    value.const_value = ir.tensor(np.full(value.const_value.shape.numpy(), 1e5, np.float32), name=value.name)
    with pytest.raises((PassError, PreconditionError)) as caught:
        HalfPrecision()(graph)
    assert f"{value.name} goes up to 100000, more than float16 can hold (65504)" in str(caught.value)


def test_a_selection_takes_rows_of_every_cache(tiny_bundle: Path) -> None:
    sizes = read_manifest(tiny_bundle).sizes
    rng = np.random.default_rng(0)
    caches = {name: rng.random((3, 2, 5, sizes.head_dim)).astype(np.float16) for name in names.past_names(sizes)}
    found = run(selection(sizes), {**caches, names.SELECTED: np.array([2, 0, 2, 2])})
    for past, present in zip(names.past_names(sizes), names.present_names(sizes), strict=True):
        np.testing.assert_array_equal(found[present], caches[past][[2, 0, 2, 2]])


def test_an_artifact_is_checked_on_the_cpu_and_said_to_be_built_not_run(bundle: Path) -> None:
    steps: list[str] = []
    checks: list[Check] = []
    artifact = optimize_bundle(bundle, "ort-cuda", progress=steps.append, on_checks=checks.extend)
    assert (artifact.name, artifact.backend, artifact.precision) == ("ort-cuda-fp16", "ort-cuda", "fp16")
    assert set(artifact.graphs) == {"encoder", "decoder", "selection"}
    assert open_bundle(bundle).artifact("ort-cuda-fp16") == artifact
    assert len(checks) > 3
    assert all(check.passed and check.name.endswith(", on the CPU") for check in checks)
    assert steps[-1] == f"built, not run here: {onnxruntime_cuda.WITHOUT_CUDA}"


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_rotated_heads_and_biases_are_checked_on_the_cpu_too(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime_cuda, "has_cuda_provider", lambda: False)
    export_module(MODULES[family](tmp_path / "checkpoint"), tmp_path / "bundle")
    checks: list[Check] = []
    artifact = optimize_bundle(tmp_path / "bundle", "ort-cuda", on_checks=checks.extend)
    assert set(artifact.graphs) == {"decoder", "selection", {"llama": "rotation", "t5": "encoder"}[family]}
    assert len(checks) > 3
    assert all(check.passed for check in checks)


def test_an_artifact_that_computes_something_else_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(model: ir.Model) -> dict[str, ir.Model]:
        beside = rewrite(model)
        for value in model.graph.initializers.values():
            if value.const_value is not None and value.const_value.nbytes > 1999:
                value.const_value = ir.tensor(value.const_value.numpy() * np.float16(-1.5), name=value.name)
        return beside

    monkeypatch.setattr(ort_cuda, "rewrite", wrong)
    before = (bundle / "bundle.json").read_bytes()
    with pytest.raises(ParityError, match="artifact ort-cuda-fp16 does not give what PyTorch gives: .*, on the CPU"):
        optimize_bundle(bundle, "ort-cuda")
    assert (bundle / "bundle.json").read_bytes() == before
    assert not (bundle / "ort-cuda-fp16").exists()
