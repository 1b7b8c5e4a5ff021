"""`edgeformer verify`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ARTIFACTS = ["onnx", "ort-cpu-fp32", "ort-cpu-int8"]


def test_every_artifact_is_verified(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    out = cli("verify", tiny_bundle).ok.out
    for artifact in ARTIFACTS:
        rows = [line for line in out.splitlines() if line.startswith(f"{artifact} ")]
        assert len(rows) >= 6
        assert all(" passed " in row for row in rows)


def test_json_has_every_check(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    found = cli("verify", tiny_bundle, "--json").ok.json
    assert found["passed"] is True
    assert found["skipped"] == []
    assert [(result["artifact"], result["against"]) for result in found["results"]] == [
        (a, "samples") for a in ARTIFACTS
    ]
    for result in found["results"]:
        assert {check["name"] for check in result["checks"]} >= {"greedy equals PyTorch", "beam 4 equals PyTorch"}


def test_one_artifact_can_be_named(cli: Callable[..., Any], bundle: Path) -> None:
    shutil.rmtree(bundle / "ort-cpu-fp32")  # which is then not looked at
    found = cli("verify", bundle, "--artifact", "ort-cpu-int8", "--json").ok.json
    assert [result["artifact"] for result in found["results"]] == ["ort-cpu-int8"]
    cli("verify", bundle).refused("ort-cpu-fp32/encoder.onnx is missing", "ort-cpu-fp32/weights.data is missing")


def test_a_device_without_torch_verifies(program: Callable[..., subprocess.Popen[bytes]], tiny_bundle: Path) -> None:
    absent = "torch", "onnx", "onnx_ir", "onnxscript", "safetensors"
    first = f"import sys; sys.modules.update(dict.fromkeys({absent}))"
    process = program("verify", tiny_bundle, "--json", first=first)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["passed"] is True


def test_a_failed_check_exits_with_1_after_the_report(
    cli: Callable[..., Any], bundle: Path, edit: Callable[..., None]
) -> None:
    edit(lambda values: values["golden"][3]["greedy"].append(7))
    result = cli("verify", bundle, "--json")
    result.refused("checks failed")
    assert result.json["passed"] is False
    failed = {
        (part["artifact"], check["name"])
        for part in result.json["results"]
        for check in part["checks"]
        if not check["passed"]
    }
    assert ("onnx", "greedy equals PyTorch") in failed
    assert ("ort-cpu-fp32", "greedy equals PyTorch") in failed
    assert not any(name.startswith(("beam", "a ragged batch")) for _, name in failed)
    (row,) = [r for r in cli("verify", bundle, "--artifact", "onnx").out.splitlines() if "greedy equals PyTorch" in r]
    assert "FAILED" in row
    assert "11 of 12 samples token for token, not 4" in row


def test_what_cannot_run_here_is_said_and_no_failure(
    cli: Callable[..., Any], bundle: Path, edit: Callable[..., None]
) -> None:
    edit(lambda values: values["artifacts"][1].update(backend="warp"))
    edit(lambda values: values["artifacts"][2].update(precision="fp4"))
    found = cli("verify", bundle, "--json").ok.json
    assert [result["artifact"] for result in found["results"]] == ["onnx"]
    elsewhere, newer = found["skipped"]
    assert elsewhere["artifact"] == "ort-cpu-fp32"
    assert "no backend 'warp' is installed" in elsewhere["reason"]
    assert newer == {"artifact": "ort-cpu-int8", "reason": "precision 'fp4' is unknown to this edgeformer"}
    assert "ort-cpu-fp32 was not verified: no backend 'warp'" in cli("verify", bundle).ok.out
    cli("verify", bundle, "--artifact", "ort-cpu-fp32").refused("nothing in bundle", "no backend 'warp' is installed")


# With the checkpoint


def test_the_checkpoint_is_compared_on_the_lines_of_a_file(
    cli: Callable[..., Any], tiny_bundle: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "words.txt"
    path.write_text("hello\nbanana\nqueue\n")
    found = cli("verify", tiny_bundle, "--checkpoint", tiny_checkpoint, "--inputs", path, "--json").ok.json
    assert [(r["artifact"], r["against"]) for r in found["results"][3:]] == [(a, "checkpoint") for a in ARTIFACTS]
    details = {check["name"]: check["detail"] for check in found["results"][4]["checks"]}
    for name in ("greedy equals PyTorch", "beam 4 equals PyTorch"):
        assert details[name].startswith("3 of 3 ")


def test_a_checkpoint_with_other_weights_fails(
    cli: Callable[..., Any], tiny_bundle: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    other = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    torch.manual_seed(1)
    tensors = {
        name: tensor + 0.3 * torch.randn_like(tensor) for name, tensor in load_file(other / "model.safetensors").items()
    }
    save_file(tensors, other / "model.safetensors")
    result = cli("verify", tiny_bundle, "--checkpoint", other, "--artifact", "ort-cpu-fp32", "--json")
    result.refused("checks failed")
    samples, anew = result.json["results"]
    assert all(check["passed"] for check in samples["checks"])
    assert {check["name"] for check in anew["checks"] if not check["passed"]} >= {
        "greedy equals PyTorch",
        "beam 4 equals PyTorch",
        "log-probabilities equal PyTorch's",
    }


def test_a_checkpoint_of_another_model_is_refused_with_every_difference(
    cli: Callable[..., Any], tiny_bundle: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "d_ff": 128, "activation": "gelu"}))
    result = cli("verify", tiny_bundle, "--artifact", "onnx", "--checkpoint", other)
    result.refused("is of another model", "d_ff is 128, the bundle's 64", "activation is gelu, the bundle's relu")


def test_a_missing_checkpoint_is_refused(cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path) -> None:
    cli("verify", tiny_bundle, "--artifact", "onnx", "--checkpoint", tmp_path / "nowhere").refused("nowhere")


@pytest.mark.parametrize(
    ("content", "reason"), [("", "is empty"), ("abc\nd3f\n", "line 2: "), (None, "cannot be read")]
)
def test_inputs_that_cannot_be_used_are_refused(
    cli: Callable[..., Any], tiny_bundle: Path, tiny_checkpoint: Path, tmp_path: Path, content: str | None, reason: str
) -> None:
    path = tmp_path / "words.txt"
    if content is not None:
        path.write_text(content)
    result = cli("verify", tiny_bundle, "--artifact", "onnx", "--checkpoint", tiny_checkpoint, "--inputs", path)
    result.refused(str(path), reason)


def test_inputs_without_a_checkpoint_are_wrong_usage(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    assert cli("verify", tiny_bundle, "--inputs", "words.txt").code == 2
