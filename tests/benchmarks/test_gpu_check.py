"""`make gpu-check`, with and without a GPU."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import gpu_check
import gpu_trials
import pytest
from gpu_report import Outcome, markdown

from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.runtime.backends.tensorrt import driver, fitness
from edgeformer.runtime.bundle import read_manifest
from edgeformer.runtime.errors import BackendUnavailableError, TargetError


@dataclasses.dataclass
class Pretence:
    """A GPU of 8 GB of which each question finds less."""

    name: str = "NVIDIA Pretence 4000"
    compute_capability: str = "8.9"
    integrated: bool = False
    driver_version: str = "13.0"
    free: int = 8 * 10**9

    def free_memory(self) -> tuple[int, int]:
        self.free -= 5_000_000
        return self.free, 8 * 10**9


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Modules of TensorRT that are installed, to be filled."""
    found: dict[str, str] = {}
    monkeypatch.setattr(fitness, "is_installed", lambda module: module in found)
    monkeypatch.setattr(fitness, "installed_version", lambda module: found.get(module))
    monkeypatch.setattr(gpu_trials, "this_platform", lambda: "linux-x86_64")
    return found


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise BackendUnavailableError(driver.NO_DRIVER)

    monkeypatch.setattr(driver, "open_device", missing)


def names(device: Any, *, tried: bool = True) -> list[str]:
    return [trial.name for trial in gpu_trials.trials(device) if (trial.reason is None) is tried]


def test_without_a_gpu_it_says_what_it_would_do_and_that_nothing_ran(
    installed: dict[str, str], no_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installed["tensorrt_rtx"] = "1.7.1.116"
    output = tmp_path / "check.json"
    assert gpu_check.run(gpu_check.parse(["-o", str(output)])) == 0
    out = capsys.readouterr().out
    assert "- tensorrt-rtx (fp16, bf16, int8, int4): would be built and run" in out
    assert "- tensorrt-11 (fp16, bf16, int8, int4): tensorrt is not installed" in out
    assert out.splitlines()[-1] == f"Nothing was built, and nothing ran: {driver.NO_DRIVER}"
    report = json.loads(output.read_text())
    assert (report["ran"], report["reason"]) == (False, driver.NO_DRIVER)
    assert "tensorrt-rtx-fp16" in [outcome["artifact"] for outcome in report["outcomes"]]


def test_it_tries_what_is_installed_for_the_gpu_that_is_here(installed: dict[str, str]) -> None:
    device = Pretence()
    assert names(device) == []
    installed |= {"tensorrt": "10.13.3.9", "tensorrt_rtx": "1.7.1.116"}
    assert [name.rsplit("-", 1) for name in names(device)] == [
        [target, precision]
        for target in ("tensorrt-10.13", "tensorrt-rtx")
        for precision in ("fp16", "bf16", "int8", "int4")
    ]
    (rtx, *_) = (trial for trial in gpu_trials.trials(device) if trial.target == "tensorrt-rtx")  # type: ignore[arg-type]
    assert rtx.gpus == ("8.9",)
    assert names(Pretence(compute_capability="9.0"))[0] == "tensorrt-10.13-fp16"
    assert "tensorrt-rtx-fp16" in names(Pretence(compute_capability="9.0"), tried=False)


def test_with_a_gpu_everything_is_built_compared_and_measured(
    installed: dict[str, str],
    tiny_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An artifact for the CPU stands in for one target; the other cannot be built."""
    installed["tensorrt_rtx"] = "1.7.1.116"

    def optimize(bundle: Path, target: str, precision: str, options: EngineOptions = EngineOptions()) -> None:  # noqa: B008
        if target == "ort-cpu":
            return
        assert options.compute_capabilities == ("8.9",)
        if precision != "fp16":
            raise TargetError("no kernel for it")
        manifest = read_manifest(bundle)
        twin = dataclasses.replace(manifest.artifacts[1], name="tensorrt-rtx-fp16")
        manifest = dataclasses.replace(manifest, artifacts=(*manifest.artifacts, twin))
        (bundle / "bundle.json").write_text(manifest.to_json())

    monkeypatch.setattr(driver, "open_device", Pretence)
    monkeypatch.setattr(gpu_check, "export_checkpoint", lambda checkpoint, bundle: shutil.copytree(tiny_bundle, bundle))
    monkeypatch.setattr(gpu_check, "optimize_bundle", optimize)
    words, output = tmp_path / "words", tmp_path / "check.json"
    words.write_text("word\nother\nthird\n")
    assert gpu_check.run(gpu_check.parse(["--words", str(words), "--rounds", "1", "-o", str(output)])) == 1
    out = capsys.readouterr().out
    assert "- GPU: NVIDIA Pretence 4000, compute capability 8.9" in out
    (row,) = [line for line in out.splitlines() if line.startswith("| tensorrt-rtx-fp16 ")]
    assert row.split(" | ")[1:3] == ["3 of 3", "3 of 3"]
    assert "5.0 MB" in row
    assert "- tensorrt-rtx-bf16: TargetError: no kernel for it" in out
    report = json.loads(output.read_text())
    assert report["ran"] is True
    assert {outcome["artifact"] for outcome in report["outcomes"] if outcome["error"] is None} == {
        "ort-cpu-fp32",
        "tensorrt-rtx-fp16",
    }


def test_the_table_is_markdown() -> None:
    outcomes = [
        Outcome("a", None, 9, 9, 8, {1: 100.0, 64: 2000.0}, 0.5, 1.0, 5_000_000, ("a note",)),
        Outcome("b", "it broke"),
    ]
    lines = markdown([("GPU", "one")], outcomes).splitlines()
    assert lines[0] == "- GPU: one"
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert "| a | 9 of 9 | 8 of 9 | 100.0 | 2000.0 | 0.500 | 1.00 s | 5.0 MB |" in table
    assert lines[-2:] == ["- a: a note", "- b: it broke"]
