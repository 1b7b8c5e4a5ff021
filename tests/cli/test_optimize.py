"""`edgeformer optimize`."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.parity import Check
from edgeformer.runtime import load

Tree = Callable[[Path], dict[str, bytes]]
INT8 = ("--target", "ort-cpu", "--precision", "int8")


def test_an_artifact_is_added(cli: Callable[..., Any], bundle: Path, edit: Callable[..., None], tree: Tree) -> None:
    edit(lambda values: values["artifacts"].pop())
    shutil.rmtree(bundle / "ort-cpu-int8")
    before = tree(bundle)
    found = cli("optimize", bundle, *INT8, "--json").ok.json
    assert (found["artifact"]["name"], found["artifact"]["precision"]) == ("ort-cpu-int8", "int8")
    assert all(check["passed"] for check in found["checks"])
    assert load(bundle, "ort-cpu-int8").generate("hello")[0].text
    after = tree(bundle)
    assert {name for name in after if after[name] != before.get(name)} == {"bundle.json", *found["artifact"]["files"]}
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]


def test_the_precision_is_the_targets_first_unless_it_is_named(cli: Callable[..., Any], bundle: Path) -> None:
    out = cli("optimize", bundle, "--target", "ort-cpu").ok.out
    for part in (str(bundle), "ort-cpu-fp32, fp32 for ort-cpu", "greedy equals PyTorch", "12 of 12"):
        assert part in out


def test_the_folder_that_one_stands_in_can_be_named_by_a_dot(
    cli: Callable[..., Any], bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bundle)
    assert cli("optimize", ".", *INT8).ok
    monkeypatch.chdir(bundle.parent)
    assert load(bundle, "ort-cpu-int8")
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]


def test_a_link_to_a_bundle_stays_one(cli: Callable[..., Any], bundle: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(bundle)
    assert cli("optimize", link, *INT8).ok
    assert link.is_symlink()
    assert load(link, "ort-cpu-int8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "place"]


# Bad input


def test_a_target_that_does_not_exist_is_refused_with_the_nearest(
    cli: Callable[..., Any], bundle: Path, tree: Tree
) -> None:
    before = tree(bundle.parent)
    result = cli("optimize", bundle, "--target", "ort-cpux")
    message = result.refused("there is no target 'ort-cpux'; known: ort-cpu", "did you mean ort-cpu?")
    assert result.err == message
    assert tree(bundle.parent) == before


def test_a_precision_that_the_target_lacks_is_refused(cli: Callable[..., Any], bundle: Path) -> None:
    cli("optimize", bundle, "--target", "ort-cpu", "--precision", "fp4").refused(
        "no precision 'fp4'; it has: fp32, fp16, bf16, int8"
    )


def test_a_missing_bundle_is_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("optimize", tmp_path / "nowhere", *INT8).refused("nowhere: there is no such folder")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_bundle_is_refused_with_all_its_damage(cli: Callable[..., Any], bundle: Path, tree: Tree) -> None:
    (bundle / "onnx" / "decoder.onnx").write_bytes(b"no graph")
    (bundle / "ort-cpu-fp32" / "weights.data").unlink()
    before = tree(bundle.parent)
    cli("optimize", bundle, *INT8).refused("onnx/decoder.onnx has 8 bytes", "ort-cpu-fp32/weights.data is missing")
    assert tree(bundle.parent) == before


def test_a_bundle_without_its_portable_graphs_is_refused(
    cli: Callable[..., Any], bundle: Path, edit: Callable[..., None]
) -> None:
    edit(lambda values: values["artifacts"].pop(0))
    cli("optimize", bundle, *INT8).refused("it has no artifact 'onnx' to begin with")


def test_a_full_disk_leaves_the_bundle(
    cli: Callable[..., Any], bundle: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, graphs: Any) -> None:
        (folder / "weights.data").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("edgeformer.exporter.ort_cpu.making.save_graphs", full)
    before = tree(bundle.parent)
    cli("optimize", bundle, *INT8).refused("No space left on device", "nothing that was there before has changed")
    assert tree(bundle.parent) == before


@pytest.mark.slow
def test_a_disk_that_fills_up_in_earnest_leaves_the_bundle(
    program: Callable[..., subprocess.Popen[bytes]], bundle: Path, tree: Tree
) -> None:
    # No file may grow beyond 30 kB: the weights have more.
    first = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))"
    before = tree(bundle.parent)
    process = program("optimize", bundle, *INT8, first=first)
    out, err = process.communicate()
    assert (process.returncode, out) == (1, b""), err
    assert b"writing\nerror: writing " in err
    assert b"Traceback" not in err
    assert tree(bundle.parent) == before


def test_an_interrupt_leaves_the_bundle(
    cli: Callable[..., Any], bundle: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(folder: Path, graphs: Any) -> None:
        (folder / "weights.data").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("edgeformer.exporter.ort_cpu.making.save_graphs", interrupted)
    before = tree(bundle.parent)
    assert cli("optimize", bundle, *INT8).refused() == "error: interrupted\n"
    assert tree(bundle.parent) == before


def test_an_artifact_that_differs_from_pytorch_is_not_kept(
    cli: Callable[..., Any], bundle: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = [Check("greedy equals PyTorch", False, "3 of 12"), Check("a cache changes nothing", True, "0")]
    monkeypatch.setattr("edgeformer.exporter.optimizing.check_artifact", lambda *given: failed)
    before = tree(bundle.parent)
    result = cli("optimize", bundle, *INT8)
    result.refused("ort-cpu-int8 does not give what PyTorch gives: greedy equals PyTorch: 3 of 12")
    assert tree(bundle.parent) == before
