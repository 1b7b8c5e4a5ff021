"""The comparison of expected and measured speed covers every artifact and batch, on a shape that takes a moment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import sizing_check

from edgeformer.cli.benching.ceilings import Ceilings
from edgeformer.cli.sizing import this_machine


def test_every_artifact_and_batch_is_compared(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(this_machine, "measure_ceilings", lambda threads, sizes: Ceilings(threads, {1000: 1e9}, 1e12))
    output = tmp_path / "report.json"
    options = "--shape tiny --precisions fp32 --batches 1 2 --capacity 32 --steps 3 --rounds 2 --threads 1"
    monkeypatch.setattr(sys, "argv", ["sizing_check.py", str(tiny_bundle), *options.split(), "-o", str(output)])
    sizing_check.main()
    results = json.loads(output.read_text())["results"]
    assert {(one["model"], one["precision"], one["batch"]) for one in results} == {
        *(("bundle", precision, batch) for precision in ("fp32", "int8") for batch in (1, 2)),
        *(("random tiny", "fp32", batch) for batch in (1, 2)),
    }
    for one in results:
        bound, seconds = one["bound"], one["seconds"]["median"]
        assert one["share"] == pytest.approx((bound["reading"] + bound["computing"]) / seconds)
        assert one["tokens_per_second"] == pytest.approx(one["batch"] / seconds)
        assert one["expected"][0] < one["expected"][1] < one["at_most"]
    assert "share" in capsys.readouterr().out
