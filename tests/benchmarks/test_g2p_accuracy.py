from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import g2p_accuracy
import pytest
from safetensors.numpy import load_file, save_file


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Exit code of the program, in this process."""
    monkeypatch.setattr(sys, "argv", ["g2p_accuracy.py", *map(str, arguments)])
    try:
        g2p_accuracy.main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return 1 if end.code else 0
    return 0


def test_every_engine_is_judged_alike(
    tiny_checkpoint: Path, tiny_bundle: Path, pronunciations: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    output = tmp_path / "accuracy.json"
    folders = ("--checkpoint", tiny_checkpoint, "--bundle", tiny_bundle)
    assert run(monkeypatch, "--data", pronunciations, *folders, "-o", output) == 0
    report = json.loads(output.read_text(encoding="utf-8"))
    results = {(result["engine"], result["search"]): result for result in report["results"]}
    engines = ("PyTorch", "onnx", "ort-cpu-fp32", "ort-cpu-int8")
    assert list(results) == [(engine, search) for engine in engines for search in ("greedy", "beam 4")]
    for engine in engines[:3]:
        for search in ("greedy", "beam 4"):
            one, pytorch = results[engine, search], results["PyTorch", search]
            assert (one["equal"], one["compared"], one["differences"]) == (64, 64, [])
            assert (one["wer"], one["per"]) == (pytorch["wer"], pytorch["per"])
            assert 0 < one["per"] < one["wer"] < 100
    assert report["generation"][1]["num_beams"] == 4
    assert report["generation"][1]["early_stopping"] is False
    assert len(report["data"]["sha256"]) == len(report["model_sha256"]) == 64
    table = capsys.readouterr().out
    assert "64 of 64" in table
    assert "FAILED" not in table


def test_pytorch_may_say_fewer_words(
    tiny_checkpoint: Path, tiny_bundle: Path, pronunciations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "accuracy.json"
    folders = ("--checkpoint", tiny_checkpoint, "--bundle", tiny_bundle)
    fewer = ("--limit", 20, "--agreement-words", 5, "--artifact", "ort-cpu-int8")
    assert run(monkeypatch, "--data", pronunciations, *folders, *fewer, "-o", output) == 0
    results = json.loads(output.read_text(encoding="utf-8"))["results"]
    assert [(result["engine"], result["rates"]["words"], result["compared"]) for result in results] == [
        ("PyTorch", 5, 5),
        ("PyTorch", 5, 5),
        ("ort-cpu-int8", 20, 5),
        ("ort-cpu-int8", 20, 5),
    ]


def test_full_precision_that_differs_fails_and_says_where(
    tiny_checkpoint: Path, tiny_bundle: Path, pronunciations: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    changed = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    weights = load_file(changed / "model.safetensors")
    weights["embedding.weight"] = weights["embedding.weight"][::-1].copy()
    save_file(weights, changed / "model.safetensors")
    folders = ("--checkpoint", changed, "--bundle", tiny_bundle)
    few = ("--limit", 4, "--artifact", "ort-cpu-fp32", "--artifact", "ort-cpu-int8")
    assert run(monkeypatch, "--data", pronunciations, *folders, *few) == 1
    printed = capsys.readouterr()
    assert "error: an artifact of full precision does not say what PyTorch says" in printed.err
    assert printed.out.count("FAILED") == 2  # greedy and beam; 8 bits may differ
    assert "ort-cpu-fp32 greedy, " in printed.out


def test_what_the_user_can_mend_is_one_line(
    tiny_checkpoint: Path, tiny_bundle: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    data = tmp_path / "list"
    data.write_text("WORD PHONEMES\n", encoding="utf-8")
    folders = ("--checkpoint", tiny_checkpoint, "--bundle", tiny_bundle)
    assert run(monkeypatch, "--data", data, *folders) == 1
    assert capsys.readouterr().err.startswith("error: ")
