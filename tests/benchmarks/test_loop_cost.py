"""The benchmark of the loop splits a text's time into what sessions take and what is around them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import loop_cost
import onnxruntime
import pytest


def test_time_around_the_runs_is_reported_for_each_search(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("run", "run_with_iobinding"):  # which the benchmark replaces
        monkeypatch.setattr(onnxruntime.InferenceSession, name, getattr(onnxruntime.InferenceSession, name))
    output = tmp_path / "report.json"
    options = ["--count", "2", "--rounds", "2", "--max-new-tokens", "6", "-o", str(output)]
    monkeypatch.setattr(sys, "argv", ["loop_cost.py", str(tiny_bundle), *options])
    loop_cost.main()
    report = json.loads(output.read_text())
    assert list(report["searches"]) == list(loop_cost.SEARCHES)
    for found in report["searches"].values():
        assert 1 <= found["steps"]["median"] <= 6
        assert found["inside"]["least"] > 0
        assert 0 < found["between"]["median"] < found["outside"]["median"]
        assert found["setup"]["median"] > 0
    assert "ort-cpu-fp32" in capsys.readouterr().out
