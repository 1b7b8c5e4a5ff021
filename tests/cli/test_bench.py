"""`edgeformer bench`, and what it measures with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.measuring import Percentiles, full_batches

QUICK = ("--rounds", 2, "--warmup", 1, "--max-new-tokens", 6)


def test_the_grid_is_measured(cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    grid = ("--batch-size", 1, "--batch-size", 5, "--num-beams", 1, "--num-beams", 2)
    artifacts = ("--artifact", "onnx", "--artifact", "ort-cpu-int8")
    found = cli("bench", tiny_bundle, *QUICK, *grid, *artifacts, "--threads", 1, "--json", "-o", output).ok.json
    assert json.loads(output.read_text()) == found
    assert (found["inputs"], found["rounds"], found["warmup"], found["threads"]) == (12, 2, 1, 1)
    assert [result["artifact"] for result in found["artifacts"]] == ["onnx", "ort-cpu-int8"]
    for result in found["artifacts"]:
        assert 0 < result["load_seconds"] < 60
        assert [(m["batch_size"], m["num_beams"]) for m in result["measurements"]] == [(1, 1), (1, 2), (5, 1), (5, 2)]
        for m in result["measurements"]:
            assert m["calls"] == 2 * (12 if m["batch_size"] == 1 else 3)
            for latency in (m["call_ms"], m["first_token_ms"], m["per_token_ms"]):
                assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"]
            assert m["first_token_ms"]["p50"] < m["call_ms"]["p50"]
            assert m["inputs_per_second"] < m["tokens_per_second"]
            assert m["peak_rss"] > 10_000_000


def test_it_tells_where_it_was_measured(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    import onnxruntime

    found = cli("bench", tiny_bundle, "hello", *QUICK, "--artifact", "ort-cpu-fp32", "--json").ok.json
    assert found["versions"]["onnxruntime"] == onnxruntime.__version__
    assert found["machine"]["cores"] >= 1
    assert {"cpu", "os", "python"} <= set(found["machine"])
    assert (found["inputs"], found["max_new_tokens"]) == (1, 6)


def test_the_table_has_a_row_for_every_artifact_that_runs_here(
    cli: Callable[..., Any], bundle: Path, edit: Callable[..., None], tmp_path: Path
) -> None:
    edit(lambda values: values["artifacts"][0].update(backend="warp"))
    path = tmp_path / "words.txt"
    path.write_text("hello\nbanana\n")
    out = cli("bench", bundle, "--inputs", path, *QUICK).ok.out
    assert "onnxruntime" in out.splitlines()[0]
    rows = [line.split()[0] for line in out.splitlines() if line.startswith(("onnx ", "ort-cpu-"))]
    assert rows == ["ort-cpu-fp32", "ort-cpu-int8"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rounds", 0), "rounds is 0, expected at least 1"),
        (("--warmup", -1), "warmup is -1, expected at least 0"),
        (("--batch-size", 4, "--batch-size", 0), "batch_size is 0, expected at least 1"),
        (("--num-beams", 1, "--num-beams", 0), "num_beams is 0"),
        (("--max-new-tokens", 99), "max_new_tokens is 99, the model has 32 positions"),
        (("--artifact", "fast"), "no artifact 'fast'"),
        (("--inputs", "nowhere.txt"), "nowhere.txt cannot be read"),
        (("h3llo",), "'3' at 1"),
        (("",), "an input is empty"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_measured(
    cli: Callable[..., Any], tiny_bundle: Path, arguments: tuple[object, ...], reason: str
) -> None:
    result = cli("bench", tiny_bundle, *arguments)
    result.refused(reason)
    assert result.out == ""


def test_an_empty_file_is_refused(cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("")
    cli("bench", tiny_bundle, "--inputs", tmp_path / "words.txt").refused("words.txt is empty")


def test_a_place_that_cannot_be_written_loses_no_result(
    cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path
) -> None:
    output = tmp_path / "nowhere" / "bench.json"
    result = cli("bench", tiny_bundle, "hello", *QUICK, "--artifact", "onnx", "--json", "-o", output)
    result.refused("bench.json cannot be written")
    assert result.json["artifacts"]


@pytest.mark.parametrize(("count", "size"), [(12, 5), (3, 3), (2, 7), (1, 1)])
def test_batches_are_full_and_hold_every_source(count: int, size: int) -> None:
    batches = full_batches([[i] for i in range(count)], size)
    assert {len(batch) for batch in batches} == {size}
    assert len(batches) == -(-count // size)
    assert {source[0] for batch in batches for source in batch} == set(range(count))


def test_percentiles_are_in_milliseconds() -> None:
    found = Percentiles.of([i / 1000 for i in range(1, 102)])
    assert found is not None
    assert (found.p50, found.p90, found.p99) == pytest.approx((51, 91, 100))
    assert Percentiles.of([]) is None
