"""An artifact for a target is added to a bundle, and nothing else in it changes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir.passes import PreconditionError

from edgeformer.exporter import optimizing, ort_cpu
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.ort_cpu import making
from edgeformer.runtime import load
from edgeformer.runtime.bundle import open_bundle, read_manifest
from edgeformer.runtime.errors import BundleError, EdgeformerError, ParityError, TargetError, WriteError


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle to change, alone in its folder."""
    return shutil.copytree(tiny_bundle, tmp_path / "place" / "bundle")


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(bundle: Path, kind: type[EdgeformerError], precision: str = "fp32") -> str:
    """An error of this kind, and the bundle as it was."""
    before = tree(bundle.parent)
    with pytest.raises(kind) as caught:
        optimize_bundle(bundle, "ort-cpu", precision)
    assert tree(bundle.parent) == before
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]
    return str(caught.value)


def names(bundle: Path) -> list[str]:
    return [artifact.name for artifact in read_manifest(bundle).artifacts]


# An artifact


def test_an_artifact_says_what_it_is(bundle: Path) -> None:
    steps: list[str] = []
    artifact = optimize_bundle(bundle, "ort-cpu", "int8-rows", progress=steps.append)
    assert (artifact.name, artifact.target, artifact.backend) == ("ort-cpu-int8-rows", "ort-cpu", "ort-cpu")
    assert artifact.precision == "int8-rows"
    assert artifact.graphs == {role: f"ort-cpu-int8-rows/{role}.onnx" for role in ("encoder", "decoder")}
    assert set(artifact.versions) == {"onnxruntime", "onnx-ir"}
    assert set(artifact.needs) == {"onnxruntime"}
    assert open_bundle(bundle).artifact("ort-cpu-int8-rows") == artifact
    assert load(bundle, artifact.name).generate("word")[0].text
    assert (steps[0], steps[-1]) == ("checking the bundle", "verifying against PyTorch's golden samples")


def test_the_first_precision_of_a_target_is_its_default(bundle: Path) -> None:
    assert optimize_bundle(bundle, "ort-cpu").precision == "fp32"


def test_a_second_time_replaces_the_artifact_and_changes_nothing_else(bundle: Path) -> None:
    before, files = tree(bundle), {path: path.stat().st_ino for path in bundle.rglob("*") if path.is_file()}
    (bundle / "ort-cpu-int8" / "left over").write_text("from an earlier version")
    optimize_bundle(bundle, "ort-cpu", "int8")
    after = tree(bundle)
    assert names(bundle) == ["onnx", "ort-cpu-fp32", "ort-cpu-int8"]
    assert after.keys() == before.keys(), "and nothing is left over"
    assert after == before, "the same graphs give the same artifact"
    for path, inode in files.items():
        kept = path.parent.name != "ort-cpu-int8" and path.name != "bundle.json"
        assert (path.stat().st_ino == inode) == kept, f"{path} should {'' if kept else 'not '}be the same file"
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]


def test_what_was_linked_to_the_bundle_stays_as_it_was(bundle: Path) -> None:
    """A backup by hard links shares the files that are replaced."""
    backup = bundle.with_name("backup")
    shutil.copytree(bundle, backup, copy_function=os.link)
    before = tree(backup)
    optimize_bundle(bundle, "ort-cpu", "int8")
    assert tree(backup) == before


def test_files_beside_the_bundles_own_are_kept(bundle: Path) -> None:
    (bundle / "README.md").write_text("a note")
    optimize_bundle(bundle, "ort-cpu", "int8")
    assert (bundle / "README.md").read_text() == "a note"


def test_the_order_of_artifacts_does_not_matter(bundle: Path) -> None:
    optimize_bundle(bundle, "ort-cpu", "fp32")
    assert sorted(names(bundle)) == ["onnx", "ort-cpu-fp32", "ort-cpu-int8"]
    assert load(bundle).artifact.name == "ort-cpu-fp32"


# What is refused


def test_a_target_or_precision_that_does_not_exist_is_refused(bundle: Path) -> None:
    assert "it has: fp32, fp16, bf16, int8" in refused(bundle, TargetError, "int3")
    with pytest.raises(TargetError, match="there is no target 'cpu'"):
        optimize_bundle(bundle, "cpu")
    with pytest.raises(TargetError, match="there is no target 'cpu'"):
        optimize_bundle(bundle.with_name("nowhere"), "cpu")  # first, since it costs nothing


def test_a_damaged_bundle_is_refused(bundle: Path) -> None:
    (bundle / "onnx" / "weights.data").write_bytes(b"")
    (bundle / "config.json").unlink()
    message = refused(bundle, BundleError)
    assert "onnx/weights.data has 0 bytes" in message
    assert "config.json is missing" in message
    with pytest.raises(BundleError, match="there is no such folder"):
        optimize_bundle(bundle.with_name("nowhere"), "ort-cpu")


def test_a_bundle_without_portable_graphs_is_refused(bundle: Path) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps({**manifest, "artifacts": manifest["artifacts"][1:]}))
    assert "onnx" in refused(bundle, BundleError)


def scale_a_weight(graph: ir.Model) -> None:
    value = next(
        v for v in graph.graph.initializers.values() if v.const_value is not None and v.const_value.nbytes > 9999
    )
    assert value.const_value is not None
    value.const_value = ir.tensor((value.const_value.numpy() * 1.5).astype(np.float32), name=value.name)


def change_the_rewriting(monkeypatch: pytest.MonkeyPatch, change: Callable[[ir.Model], Any]) -> None:
    original = ort_cpu.rewrite

    def rewrite(graph: ir.Model, *arguments: Any) -> dict[str, ir.Model]:
        beside = original(graph, *arguments)
        change(graph)
        return beside

    monkeypatch.setattr(ort_cpu, "rewrite", rewrite)


def test_an_artifact_that_computes_something_else_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_the_rewriting(monkeypatch, scale_a_weight)
    message = refused(bundle, ParityError)
    assert message.startswith("artifact ort-cpu-fp32 does not give what PyTorch gives: ")
    assert "of 12 samples token for token" in message


def test_a_full_disk_is_one_clear_error(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, graphs: object) -> None:
        (folder / "weights.data").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(making, "save_graphs", full)
    assert f"writing {bundle} failed: No space left on device" in refused(bundle, WriteError)


def test_ctrl_c_leaves_the_bundle_as_it_was(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    before = tree(bundle.parent)
    monkeypatch.setattr(optimizing, "check_artifact", interrupt)
    with pytest.raises(KeyboardInterrupt):
        optimize_bundle(bundle, "ort-cpu", "int8")
    assert tree(bundle.parent) == before


def test_a_graph_that_the_target_cannot_take_is_the_users_to_know(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(graph: ir.Model) -> None:
        raise PreconditionError("node_attention: heads are 12 wide")

    change_the_rewriting(monkeypatch, refuse)
    assert "heads are 12 wide" in refused(bundle, TargetError)
