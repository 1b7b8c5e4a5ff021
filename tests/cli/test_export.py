"""`edgeformer export`."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.parity import Check
from edgeformer.runtime import load
from edgeformer.runtime.bundle import Manifest, read_manifest

Tree = Callable[[Path], dict[str, bytes]]


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint to change at will."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")


def test_a_checkpoint_becomes_a_bundle_in_the_place_of_an_earlier_one(
    cli: Callable[..., Any], tiny_checkpoint: Path, tiny_bundle: Path, bundle: Path
) -> None:
    result = cli("export", tiny_checkpoint, "-o", bundle, "--overwrite", "--json").ok
    found = result.json
    assert (found["bundle"], found["family"]) == (str(bundle), "transformer")
    assert found["sizes"]["vocab_size"] == 69
    assert [artifact["name"] for artifact in found["artifacts"]] == ["onnx"]
    assert len(found["checks"]) >= 6
    assert all(check["passed"] for check in found["checks"])
    assert load(bundle).generate("hello")[0].text == load(tiny_bundle, "onnx").generate("hello")[0].text
    assert not (bundle / "ort-cpu-int8").exists()
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]
    assert "exporting the step graph\n" in result.err


@pytest.mark.parametrize(
    "checks", [[], [Check("greedy equals PyTorch", True, "12 of 12")]], ids=["not verified", "verified"]
)
def test_the_summary_has_sizes_and_checks(
    cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: list[Check]
) -> None:
    manifest = read_manifest(tiny_bundle)
    asked: list[object] = []

    def export(checkpoint: Path, output: Path, *, overwrite: bool, progress: Any, on_checks: Any) -> Manifest:
        asked.extend((checkpoint, output, overwrite))
        on_checks(checks)
        return dataclasses.replace(manifest, artifacts=manifest.artifacts[:1])

    monkeypatch.setattr("edgeformer.exporter.exporting.export_checkpoint", export)
    out = cli("export", "checkpoint", "--output", tmp_path / "new").ok.out
    assert asked == [Path("checkpoint"), tmp_path / "new", False]
    for part in (str(tmp_path / "new"), "vocab_size 69", "onnx, fp32 for onnx, "):
        assert part in out
    assert out.splitlines()[-2 if checks else -1].startswith("greedy equals PyTorch" if checks else "not verified: ")


# Bad input


def test_a_missing_checkpoint_is_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("export", tmp_path / "nowhere", "-o", tmp_path / "bundle").refused("nowhere: there is no such folder")
    assert list(tmp_path.iterdir()) == []


def damage_safetensors(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def write_nonsense(checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(b"not safetensors")


def drop_a_layer(checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_decoder_layers": 3}))


def damage_config(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text("{")


def damage_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").write_text("{}")


def remove_tokenizer(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (damage_safetensors, ["model.safetensors cannot be read"]),
        (write_nonsense, ["model.safetensors cannot be read"]),
        (drop_a_layer, ["decoder_layers.2", "is missing"]),
        (damage_config, ["config.json is not JSON"]),
        (damage_tokenizer, ["tokenizer.json is not a tokenizer"]),
        (remove_tokenizer, ["it has no tokenizer: looked for tokenizer.json"]),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_the_earlier_bundle_stays(
    cli: Callable[..., Any], checkpoint: Path, bundle: Path, tree: Tree, damage: Callable[[Path], None],
    parts: list[str],
) -> None:  # fmt: skip
    damage(checkpoint)
    before = tree(bundle.parent)
    cli("export", checkpoint, "-o", bundle, "--overwrite").refused(str(checkpoint), *parts)
    assert tree(bundle.parent) == before


def test_a_folder_with_other_things_is_left_alone(
    cli: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, tree: Tree
) -> None:
    place = tmp_path / "thesis"
    place.mkdir()
    (place / "chapter1.txt").write_text("years of work")
    for overwrite in ([], ["--overwrite"]):
        cli("export", tiny_checkpoint, "-o", place, *overwrite).refused("thesis exists and is not a bundle")
    assert tree(tmp_path) == {"thesis/chapter1.txt": b"years of work"}


def test_a_bundle_is_not_replaced_unasked(
    cli: Callable[..., Any], tiny_checkpoint: Path, bundle: Path, tree: Tree
) -> None:
    before = tree(bundle.parent)
    cli("export", tiny_checkpoint, "-o", bundle).refused("holds a bundle already", "--overwrite")
    assert tree(bundle.parent) == before


def test_a_place_below_a_file_is_refused(cli: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cli("export", tiny_checkpoint, "-o", tmp_path / "file" / "bundle").refused("cannot write", "choose another place")


def test_a_full_disk_leaves_the_earlier_bundle(
    cli: Callable[..., Any], tiny_checkpoint: Path, bundle: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, graphs: Any) -> None:
        (folder / "weights.data").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    for role in ("encoder", "step"):  # which takes long, and is not what is looked at
        monkeypatch.setattr(f"edgeformer.exporter.onnx_graphs.export_{role}", lambda model: None)
    monkeypatch.setattr("edgeformer.exporter.exporting.save_graphs", full)
    before = tree(bundle.parent)
    cli("export", tiny_checkpoint, "-o", bundle, "--overwrite").refused("No space left on device", "free some space")
    assert tree(bundle.parent) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupt_leaves_the_earlier_bundle(
    program: Callable[..., subprocess.Popen[bytes]], tiny_checkpoint: Path, bundle: Path, tree: Tree,
    number: signal.Signals,
) -> None:  # fmt: skip
    before = tree(bundle.parent)
    process = program("export", tiny_checkpoint, "-o", bundle, "--overwrite")
    assert process.stderr is not None
    for line in process.stderr:
        if line == b"exporting the encoder\n":
            assert len(list(bundle.parent.iterdir())) == 2  # the bundle, and what is being written
            process.send_signal(number)
            break
    out, err = process.communicate()
    assert (process.returncode, out, err) == (1, b"", b"error: interrupted\n")
    assert tree(bundle.parent) == before
    assert [path.name for path in bundle.parent.iterdir()] == ["bundle"]


def test_missing_packages_are_named_before_any_work(
    cli: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"onnx": object(), "onnx_ir": object()}
    monkeypatch.setattr("edgeformer.cli.requirements.find_spec", there.get)
    result = cli("export", tiny_checkpoint, "-o", tmp_path / "bundle")
    message = result.refused(
        "export needs torch, onnxscript, safetensors, onnxruntime", "pip install 'edgeformer[export]'"
    )
    assert result.err == message
