from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import g2p_speed
import pytest
import speed_report
from taking_turns import Engine

from edgeformer.runtime.errors import InputError, TargetError


def stand_in(pairs: speed_report.Pairs, options: argparse.Namespace, most: int, scratch: Path) -> list[Engine]:
    """The portable graphs in the place of the peer, which is not installed for tests."""
    names = [name for pair in pairs for name in pair]
    worker = (sys.executable, str(g2p_speed.WORKER), str(options.bundle), "--max-new-tokens", str(most))
    return [Engine(name, (*worker, "--artifact", name if name.startswith("ort") else "onnx")) for name in names]


@pytest.mark.slow
def test_a_run_compares_pairs_in_every_setting(
    tiny_checkpoint: Path, tiny_bundle: Path, pronunciations: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    output = tmp_path / "speed.json"
    monkeypatch.setattr(g2p_speed, "make_engines", stand_in)
    monkeypatch.setattr(g2p_speed, "PAIRS", (("ort-cpu-fp32", "float32"), ("ort-cpu-none", "int8")))
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    arguments = ("--data", pronunciations, "--checkpoint", tiny_checkpoint, "--bundle", tiny_bundle, "-o", output)
    g2p_speed.run(g2p_speed.parse([*map(str, arguments), "--rounds", "2", "--threads", "1"]))

    report = json.loads(output.read_text(encoding="utf-8"))
    setups = [(entry["threads"], entry["batch"], entry["beams"], entry["words"]) for entry in report["settings"]]
    assert setups == [(1, 1, 1, 16), (1, 1, 4, 16), (1, 64, 1, 64), (1, 64, 4, 64)]
    for entry in report["settings"]:
        assert [pair["equal_outputs"] for pair in entry["pairs"]] == [100]
        assert list(entry["engines"]) == ["ort-cpu-fp32", "CTranslate2 float32"]
        assert (entry["best"]["ours"], entry["best"]["peer"]) == ("ort-cpu-fp32", "CTranslate2 float32")
        for engine in entry["engines"].values():
            assert engine["equal_to_pytorch"] == 100
            assert len(engine["rounds"]) == 2
            assert engine["description"]["search"]["early_stopping"] is True
            assert engine["words_per_second"]["least"] <= engine["words_per_second"]["median"]
    printed = capsys.readouterr()
    assert "left out: ort-cpu-none" in printed.err
    assert "noisy: the load average was 1000.00" in printed.out


def test_a_bundle_without_anything_to_compare_is_refused(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(g2p_speed, "PAIRS", (("ort-cpu-none", "int8"),))
    with pytest.raises(TargetError, match="none of ort-cpu-none"):
        g2p_speed.available_pairs(tiny_bundle)


def entry(words: int, beams: int, wer: dict[str, float], seconds: dict[str, float]) -> dict[str, object]:
    engines = {name: {"wer": wer.get(name, 99.0), "rounds": [{"seconds": s}] * 3} for name, s in seconds.items()}
    return {"words": words, "beams": beams, "engines": engines}


def test_the_best_is_the_fastest_that_is_accurate_enough() -> None:
    seconds = {"ort-cpu-fp32": 3.0, "ort-cpu-int8": 2.0, "ort-cpu-int8-rows": 1.0, "CTranslate2 int8": 3.0,
               "CTranslate2 float32": 4.0}  # fmt: skip
    wide = {"ort-cpu-fp32": 20.0, "ort-cpu-int8": 20.1, "ort-cpu-int8-rows": 20.3}
    few = dict.fromkeys(wide, 10.0)  # fewer words tell less
    measured = [entry(500, 1, few, seconds), entry(2000, 1, wide, seconds), entry(2000, 4, few, seconds)]
    accuracy = speed_report.accuracy_here(measured)
    assert accuracy == {1: wide, 4: few}
    speed_report.add_best(measured, accuracy)
    assert [e["best"]["ours"] for e in measured] == ["ort-cpu-int8", "ort-cpu-int8", "ort-cpu-int8-rows"]  # type: ignore[index]
    assert measured[0]["best"] == {
        "ours": "ort-cpu-int8",
        "peer": "CTranslate2 int8",
        "ratio": {"median": 1.5, "least": 1.5, "most": 1.5},
    }


def test_accuracy_is_read_from_what_g2p_accuracy_wrote(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.json"
    results = [
        {"engine": engine, "num_beams": beams, "wer": 20.0 + beams}
        for engine in ("PyTorch", "ort-cpu-fp32")
        for beams in (1, 4)
    ]
    path.write_text(json.dumps({"results": results}), encoding="utf-8")
    assert speed_report.accuracy_from(path, ["ort-cpu-fp32"]) == {1: {"ort-cpu-fp32": 21.0}, 4: {"ort-cpu-fp32": 24.0}}
    with pytest.raises(InputError, match="has no accuracy of ort-cpu-int8"):
        speed_report.accuracy_from(path, ["ort-cpu-fp32", "ort-cpu-int8"])
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="not what g2p_accuracy.py writes"):
        speed_report.accuracy_from(path, ["ort-cpu-fp32"])
