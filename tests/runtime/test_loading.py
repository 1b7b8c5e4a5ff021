"""`load` takes the best artifact that runs here, and says what is missing for the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import load
from edgeformer.runtime.backends import backends, older, onnxruntime_cpu
from edgeformer.runtime.errors import BackendUnavailableError, TargetError
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
