"""`edgeformer inspect`."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime.bundle import SCHEMA_VERSION


def test_it_shows_what_the_bundle_holds(cli: Callable[..., Any], bundle: Path) -> None:
    out = cli("inspect", bundle).ok.out
    for part in ("transformer", "vocab_size 69, num_layers 2", "pad 0, start 1, end 2", "12 of what PyTorch gave"):
        assert part in out
    for part in ("ort-cpu-fp32", "ort-cpu-int8", f"onnx-ir {version('onnx-ir')}", "every file is as recorded"):
        assert part in out


def test_json_has_it_all(cli: Callable[..., Any], bundle: Path) -> None:
    found = cli("inspect", bundle, "--json").ok.json
    manifest = json.loads((bundle / "bundle.json").read_text())
    assert found["family"] == "transformer"
    assert found["sizes"] == manifest["sizes"]
    assert found["tokens"] == {"pad": 0, "start": 1, "ends": [2]}
    assert found["golden_samples"] == 12
    assert found["problems"] == []
    assert [artifact["name"] for artifact in found["artifacts"]] == ["onnx", "ort-cpu-fp32", "ort-cpu-int8"]
    for artifact in found["artifacts"]:
        on_disk = {
            path.relative_to(bundle).as_posix(): path.stat().st_size for path in (bundle / artifact["name"]).iterdir()
        }
        assert artifact["files"] == on_disk
        assert artifact["bytes"] == sum(on_disk.values())
        assert (artifact["runs_here"], artifact["reason"]) == (True, None)
    assert found["artifacts"][0]["versions"]["torch"] == version("torch")
    assert set(found["files"]) == {"config.json", "tokenizer.json", "target_tokenizer.json"}


def test_operators_are_counted_on_demand(cli: Callable[..., Any], bundle: Path) -> None:
    counted = cli("inspect", bundle, "--graphs", "--json").ok.json["operators"]
    assert len(counted) == 6
    assert counted["onnx/decoder.onnx"]["Attention"] == 4  # self and source attention of two layers
    assert counted["onnx/decoder.onnx"]["TensorScatter"] == 4
    assert counted["ort-cpu-fp32/decoder.onnx"]["edgeformer.GroupQueryAttention"] == 2
    lines = cli("inspect", bundle, "--graphs").ok.out.splitlines()
    assert any(line.split() == ["onnx/decoder.onnx", "TensorScatter", "4"] for line in lines)


def test_counting_operators_without_onnx_ir_says_how_to_get_it(
    cli: Callable[..., Any], bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeformer.cli.requirements.find_spec", lambda name: None)
    cli("inspect", bundle, "--graphs").refused("inspect --graphs needs onnx_ir", "pip install 'edgeformer[export]'")


def test_what_cannot_run_here_has_its_reason(
    cli: Callable[..., Any], bundle: Path, edit: Callable[[Callable[[Any], None]], None]
) -> None:
    edit(lambda values: values["artifacts"][1].update(backend="warp"))
    found = cli("inspect", bundle, "--json").ok.json["artifacts"][1]
    assert found["runs_here"] is False
    assert "no backend 'warp' is installed" in found["reason"]
    assert "no backend 'warp' is installed" in cli("inspect", bundle).ok.out


def test_all_damage_is_named_at_once(cli: Callable[..., Any], bundle: Path) -> None:
    (bundle / "onnx" / "encoder.onnx").unlink()
    weights = bundle / "ort-cpu-int8" / "weights.data"
    weights.write_bytes(bytes(weights.stat().st_size))
    (bundle / "config.json").write_text("{}")
    result = cli("inspect", bundle, "--json", "--graphs")
    message = result.refused("onnx/encoder.onnx is missing", "config.json has 2 bytes, expected")
    assert "ort-cpu-int8/weights.data has another SHA-256" in message
    assert len(result.json["problems"]) == 4  # and what to do
    assert "see the error below" in cli("inspect", bundle).out


def test_a_missing_bundle_is_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    cli("inspect", tmp_path / "nowhere").refused("nowhere: there is no such folder", "edgeformer export")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "bundle.json is damaged"),
        ("[1]", "bundle.json names no schema_version"),
        (b"\xff\xfe", "bundle.json is damaged"),
        ("[" * 100_000, "bundle.json is damaged"),
        ('{"schema_version": 1}', "bundle.json is damaged: KeyError"),
        (None, "bundle.json is missing, so this is not a bundle"),
    ],
    ids=["cut off", "a list", "no text", "nested without end", "without its keys", "missing"],
)
def test_a_damaged_manifest_is_refused(
    cli: Callable[..., Any], bundle: Path, content: str | bytes | None, reason: str
) -> None:
    path = bundle / "bundle.json"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    for command in ("inspect", "run", "verify", "bench"):
        cli(command, bundle).refused(reason) if command != "run" else cli("run", bundle, "word").refused(reason)


def test_a_manifest_that_is_a_folder_is_refused(cli: Callable[..., Any], bundle: Path) -> None:
    (bundle / "bundle.json").unlink()
    (bundle / "bundle.json").mkdir()
    cli("inspect", bundle).refused("bundle.json cannot be read")


def test_a_newer_schema_is_refused(
    cli: Callable[..., Any], bundle: Path, edit: Callable[[Callable[[Any], None]], None]
) -> None:
    edit(lambda values: values.update(schema_version=SCHEMA_VERSION + 1, a_new_key=1))
    cli("inspect", bundle).refused(
        f"its schema is {SCHEMA_VERSION + 1}, this edgeformer reads up to {SCHEMA_VERSION}: upgrade edgeformer"
    )
