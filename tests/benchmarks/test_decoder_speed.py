"""The benchmark of language models measures every cell, on a shape that takes a moment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import decoder_speed
import pytest

from edgeformer.cli.benching.ceilings import Ceilings


def test_prompts_and_steps_of_every_precision_and_batch_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decoder_speed, "measure_ceilings", lambda threads, sizes: Ceilings(threads, {1000: 1e9}, 1e12))
    output = tmp_path / "report.json"
    options = "--shape tiny --precisions fp32 int8 --batches 1 2 --prompts 12 --steps 3 --rounds 2 --threads 1"
    monkeypatch.setattr(sys, "argv", ["decoder_speed.py", *options.split(), "--without-own", "-o", str(output)])
    decoder_speed.main()
    report = json.loads(output.read_text())
    cells = {(result["precision"], result["batch"], result["length"]): result for result in report["results"]}
    precisions = [f"{p}{which}" for p in ("fp32", "int8") for which in ("", decoder_speed.WITHOUT_OWN)]
    assert set(cells) == {(p, b, n) for p in precisions for b in (1, 2) for n in (None, 12)}
    for (_, batch, length), cell in cells.items():
        tokens = batch * (length or 1)
        assert cell["tokens_per_second"] == pytest.approx(tokens / cell["seconds"]["median"])
        assert cell["seconds"]["least"] <= cell["seconds"]["median"] <= cell["seconds"]["most"]
        share, none = ("floor_share", "flops_share") if length is None else ("flops_share", "floor_share")
        assert cell[none] is None
        assert cell[share] > 0
    floor = cells["fp32", 1, None]
    assert floor["floor_share"] == pytest.approx(floor["bytes"] / 1e9 / floor["seconds"]["median"])
    assert cells["int8", 1, None]["bytes"] < 0.6 * floor["bytes"]
    assert "decode" in capsys.readouterr().out
