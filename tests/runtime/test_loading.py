"""`load` takes the best artifact that runs here, and says what is missing for the others."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.targets import TARGETS
from edgeformer.runtime import load, loading
from edgeformer.runtime.backends import backends, older, onnxruntime_cpu
from edgeformer.runtime.bundle import Artifact
from edgeformer.runtime.errors import BackendUnavailableError, EdgeformerError, NotEnoughMemoryError, TargetError
from edgeformer.runtime.loading import choose


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle to change."""
    return shutil.copytree(tiny_bundle, tmp_path / "bundle")


def change(bundle: Path, name: str, **values: Any) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text())
    (artifact,) = [artifact for artifact in manifest["artifacts"] if artifact["name"] == name]
    artifact.update(values)
    (bundle / "bundle.json").write_text(json.dumps(manifest))


def test_an_artifact_is_loaded_by_its_name(tiny_bundle: Path) -> None:
    for name in ("ort-cpu-fp32", "ort-cpu-int8"):
        assert load(tiny_bundle, name).artifact.name == name
        assert load(str(tiny_bundle), artifact=name, threads=1).artifact.name == name


def test_full_precision_made_for_a_target_is_best(bundle: Path) -> None:
    assert load(bundle).artifact.name == "ort-cpu-fp32"


def test_the_best_that_runs_here_is_taken(bundle: Path) -> None:
    change(bundle, "ort-cpu-fp32", backend="of the future")
    assert load(bundle).artifact.name == "ort-cpu-int8"
    change(bundle, "ort-cpu-int8", needs={"onnxruntime": "999.0"})
    change(bundle, "onnx", needs={})
    assert choose(bundle, None).name == "onnx"


def test_why_the_others_were_passed_over_is_told(bundle: Path) -> None:
    change(bundle, "ort-cpu-fp32", needs={"onnxruntime": "999.0"})
    model = load(bundle)
    assert model.artifact.name == "ort-cpu-int8"
    assert list(model.passed_over) == ["ort-cpu-fp32", "onnx"]
    assert model.passed_over["ort-cpu-fp32"].startswith("it needs onnxruntime 999.0, ")
    assert model.passed_over["onnx"] == "ort-cpu-int8 comes before it"
    assert load(bundle, "ort-cpu-int8").passed_over == {}  # none was looked at


@pytest.mark.parametrize("error", [BackendUnavailableError("it does not start"), NotEnoughMemoryError("it is large")])
def test_what_shows_only_when_it_is_loaded_is_passed_over_too(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, error: EdgeformerError
) -> None:
    original = loading.Model

    def model(bundle: Any, artifact: Artifact, threads: int | None) -> Any:
        if artifact.precision == "fp32" and artifact.target == "ort-cpu":
            raise error
        return original(bundle, artifact, threads)

    monkeypatch.setattr(loading, "Model", model)
    found = load(bundle)
    assert found.artifact.name == "ort-cpu-int8"
    assert found.passed_over == {"ort-cpu-fp32": str(error), "onnx": "ort-cpu-int8 comes before it"}
    with pytest.raises(type(error), match=str(error)):
        load(bundle, "ort-cpu-fp32")


def test_engines_come_first_then_gpus_then_the_cpu_then_the_portable_graphs() -> None:
    def named(name: str, backend: str, precision: str) -> Artifact:
        return Artifact(name, name, backend, precision, graphs={}, files={}, versions={}, needs={})

    best_first = [
        named("tensorrt-rtx-fp16", "tensorrt", "fp16"),
        named("tensorrt-rtx-bf16", "tensorrt", "bf16"),
        named("tensorrt-11-fp32", "tensorrt", "fp32"),
        named("tensorrt-rtx-int8", "tensorrt", "int8"),
        named("tensorrt-rtx-int4", "tensorrt", "int4"),
        named("ort-cuda-fp16", "ort-cuda", "fp16"),
        named("ort-cpu-fp32", "ort-cpu", "fp32"),
        named("ort-cpu-fp16", "ort-cpu", "fp16"),
        named("ort-cpu-int8", "ort-cpu", "int8"),
        named("ort-cpu-int8-rows", "ort-cpu", "int8-rows"),
        named("other-fp32", "of the future", "fp32"),
        named("onnx", "ort-cpu", "fp32"),
    ]
    shuffled = random.Random(0).sample(best_first, len(best_first))
    assert shuffled != best_first
    assert sorted(shuffled, key=loading.rank) == best_first


def test_every_backend_and_precision_of_the_targets_has_its_rank() -> None:
    assert {target.backend for target in TARGETS.values()} == set(loading.BACKENDS)
    assert {precision for target in TARGETS.values() for precision in target.precisions} == set(loading.PRECISIONS)


def test_if_nothing_runs_here_every_reason_is_named(bundle: Path) -> None:
    change(bundle, "ort-cpu-fp32", backend="of the future")
    change(bundle, "ort-cpu-int8", needs={"onnxruntime": "999.0"})
    change(bundle, "onnx", backend="of the past")
    with pytest.raises(BackendUnavailableError) as caught:
        load(bundle)
    message = str(caught.value)
    assert message.startswith(f"nothing in bundle {bundle} can run here: ")
    for part in ("ort-cpu-fp32", "of the future", "ort-cpu-int8", "onnxruntime 999.0", "of the past"):
        assert part in message


def test_without_artifacts_nothing_runs(bundle: Path) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps({**manifest, "artifacts": []}))
    with pytest.raises(BackendUnavailableError, match="it is empty"):
        load(bundle)


def test_an_artifact_that_is_not_there_is_refused_with_those_that_are(tiny_bundle: Path) -> None:
    with pytest.raises(TargetError, match="has no artifact 'tensorrt'; it has: onnx, ort-cpu-fp32, ort-cpu-int8"):
        load(tiny_bundle, "tensorrt")


@pytest.mark.parametrize("name", [None, "ort-cpu-int8"])
def test_a_missing_library_is_named_with_what_brings_it(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    monkeypatch.setattr(onnxruntime_cpu, "find_spec", lambda module: None)
    assert backends()["ort-cpu"].unavailable()
    with pytest.raises(BackendUnavailableError, match=r"onnxruntime is not installed; pip install 'edgeformer\[cpu\]'"):
        load(tiny_bundle, name)


def test_a_library_that_is_too_old_is_named_with_both_versions(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime_cpu, "installed_version", lambda: "1.2.0")
    with pytest.raises(BackendUnavailableError, match=r"onnxruntime 1\.\d+, 1\.2\.0 is installed; pip install"):
        load(tiny_bundle, "ort-cpu-int8")


def test_what_else_goes_into_loading_is_the_callers_to_see(tiny_bundle: Path) -> None:
    model = load(tiny_bundle)
    assert (model.artifact.target, model.artifact.precision) == ("ort-cpu", "fp32")
    assert set(model.artifact.versions) >= {"onnxruntime", "onnx-ir"}


@pytest.mark.parametrize(
    ("version", "least", "expected"),
    [
        ("1.9.0", "1.10", True),
        ("1.23.2", "1.25", True),
        ("1.25", "1.25", False),
        ("1.25.0", "1.25", False),
        ("1.32.0", "1.25", False),
        ("2.0", "1.99", False),
        ("0.99", "1", True),
        ("1.26.0.dev20261101", "1.25", False),
        ("1.24.4+cu13", "1.25", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, least: str, expected: bool) -> None:
    assert older(version, least) is expected
