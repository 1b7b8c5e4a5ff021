from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import kernel_resources
import pytest

from edgeformer.exporter.kernels.compiling import Compiled
from edgeformer.runtime.plugins.kernels import PREFILL, Kernel, Variant


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Stands in for Triton; `local` is what its prefill kernels spill."""
    spills = {"local": 0}

    def compile_kernel(variant: Variant, form: str, compute_capability: str) -> Compiled:
        local = spills["local"] if form == PREFILL else 0
        kernel = Kernel(variant, form, compute_capability, "", "attention", (), 16384, 4, 64, 1, 128, local)
        return Compiled(kernel, b"")

    monkeypatch.setattr(kernel_resources, "compile_kernel", compile_kernel)
    return spills


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["kernel_resources.py", *arguments])
    return kernel_resources.main()


def test_every_kernel_is_counted_on_every_gpu(
    compiler: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "resources.json"
    gpus = ("--compute-capability", "8.7", "--compute-capability", "8.9")
    assert run(monkeypatch, *gpus, "--head-dim", "64", "-o", str(output)) == 0
    printed = capsys.readouterr().out
    assert "8 kernels, 0 of them spill" in printed
    values: dict[str, Any] = json.loads(output.read_text())
    assert len(values["kernels"]) == 8
    assert {(row["compute_capability"], row["operator"], row["form"]) for row in values["kernels"]} == {
        (gpu, operator, form)
        for gpu in ("8.7", "8.9")
        for operator in ("CachedAttention", "SourceAttention")
        for form in ("prefill", "decode")
    }
    # 128 registers of 128 threads: four blocks of 4 warps, of the 48 that both hold.
    assert {row["occupancy"] for row in values["kernels"]} == {16 / 48}
    assert {field.name for field in dataclasses.fields(kernel_resources.Row)} == set(values["kernels"][0])


def test_a_kernel_that_spills_is_a_failure(compiler: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    compiler["local"] = 8
    assert run(monkeypatch, "--compute-capability", "8.7") == 1


def test_a_gpu_that_is_not_known_is_one_line(
    compiler: dict[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--compute-capability", "6.1") == 1
    assert capsys.readouterr().err.startswith("error: our attention kernels are not made for compute capability 6.1")
