"""`edgeformer bench`, its record, and what compares and shows records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUICK = ("--rounds", 2, "--warmup", 1, "--max-new-tokens", 6, "--calls-only", "--threads", 1)
GRID = ("--rounds", 2, "--warmup", 1, "--prompt", "4,8", "--new-tokens", "3", "--calls-only", "--threads", 1)


@pytest.fixture(scope="module")
def record_file(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record with everything that this machine can tell, of one artifact."""
    from typer.testing import CliRunner

    from edgeformer.cli.main import app

    path = tmp_path_factory.mktemp("records") / "today.json"
    grid = ["--batch", "1,5", "--prompt", "4", "--new-tokens", "3", "--rounds", "8", "--threads", "1"]
    arguments = ["bench", str(tiny_bundle), "--artifact", "ort-cpu-fp32", *grid, "-o", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return path


def test_the_grid_is_measured(cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    grid = ("--batch", "1,5", "--num-beams", "1,2", "--artifact", "onnx", "--artifact", "ort-cpu-int8")
    found = cli("bench", tiny_bundle, *QUICK, *grid, "--json", "-o", output).ok.json
    assert json.loads(output.read_text()) == found
    settings = found["settings"]
    assert (settings["inputs"], settings["rounds"], settings["warmup"], settings["threads"]) == (12, 2, 1, 1)
    assert settings["prompts"] == "the bundle's samples"
    assert [result["artifact"] for result in found["artifacts"]] == ["onnx", "ort-cpu-int8"]
    for result in found["artifacts"]:
        assert [(c["batch"], c["num_beams"]) for c in result["cells"]] == [(1, 1), (1, 2), (5, 1), (5, 2)]
        for cell in result["cells"]:
            assert cell["calls"] == len(cell["samples"]["e2e"]) == 2 * (12 if cell["batch"] == 1 else 3)
            for latency in (cell["ttft_ms"], cell["itl_ms"], cell["e2e_ms"]):
                assert 0 < latency["p50"]["value"] <= latency["p90"]["value"] <= latency["p99"]["value"]
            assert cell["ttft_ms"]["p50"]["value"] < cell["e2e_ms"]["p50"]["value"]
            assert cell["inputs_per_second"]["value"] < cell["tokens_per_second"]["value"]


def test_lengths_are_those_that_were_asked_for(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    found = cli("bench", tiny_bundle, *GRID, "--batch", "1,2", "--artifact", "onnx", "--json").ok.json
    cells = found["artifacts"][0]["cells"]
    assert [(c["batch"], c["prompt"], c["new_tokens"]) for c in cells] == [(1, 4, 3), (1, 8, 3), (2, 4, 3), (2, 8, 3)]
    for cell in cells:
        assert cell["samples"]["tokens"] == [3 * cell["batch"]] * 2
        assert [len(steps) for steps in cell["samples"]["itl"]] == [2, 2]


def test_a_record_has_all_that_its_figures_depend_on(record_file: Path, tiny_bundle: Path) -> None:
    import onnxruntime

    from edgeformer.cli.benching.origins import bundle_hash
    from edgeformer.cli.benching.records import read_record

    found = read_record(record_file)
    assert found["bundle"]["sha256"] == bundle_hash(tiny_bundle)
    assert found["versions"]["onnxruntime"] == onnxruntime.__version__
    assert {"cpu", "os", "python", "cores"} <= set(found["machine"])
    assert found["ceilings"]["threads"] == 1
    (artifact,) = found["artifacts"]
    assert artifact["load"]["warm"]["load_seconds"] > 0
    assert artifact["memory"]["host_peak_bytes"] > 20_000_000
    for cell in artifact["cells"]:
        assert cell["roofline"]["step"]["bandwidth_share"] > 0
        assert cell["roofline"]["first_token"]["flops"] > cell["batch"] * 4 * artifact["weights"]["encoder"]["count"]
        assert cell["energy"] == "not supported" or cell["energy"]["joules_per_token"] > 0
    assert {counter["name"].partition(".")[0] for counter in artifact["telemetry"]["counters"]} >= {
        "rapl",
        "cpu",
        "gpu",
    }


def test_the_table_has_a_row_for_every_artifact_that_runs_here(
    cli: Callable[..., Any], bundle: Path, edit: Callable[..., None], tmp_path: Path
) -> None:
    edit(lambda values: values["artifacts"][0].update(backend="warp"))
    path = tmp_path / "words.txt"
    path.write_text("hello\nbanana\n")
    out = cli("bench", bundle, "--inputs", path, *QUICK).ok.out
    assert "onnxruntime" in out.splitlines()[0]
    rows = [line.split()[0] for line in out.splitlines() if line.startswith(("onnx ", "ort-cpu-")) and ": " not in line]
    assert rows == ["ort-cpu-fp32", "ort-cpu-int8"]


def test_run_may_be_said(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    found = cli("bench", "run", tiny_bundle, "hello", *QUICK, "--artifact", "onnx", "--json").ok.json
    assert (found["settings"]["inputs"], found["artifacts"][0]["cells"][0]["max_new_tokens"]) == (1, 6)
    for command in ("compare", "report"):
        assert f"edgeformer bench {command}" in cli("bench", command, "--help").ok.out


def test_requests_are_replayed(cli: Callable[..., Any], tiny_bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"at": 0, "text": "hello"}\n{"at": 0, "text": "banana"}\n{"at": 0.01, "text": "a"}\n')
    arguments = ("--replay", path, "--batch", 2, "--artifact", "onnx", "--calls-only", "--json")
    (cell,) = cli("bench", tiny_bundle, *arguments).ok.json["artifacts"][0]["cells"]
    assert (cell["replay"], cell["calls"]) == (True, 3)
    assert cell["samples"]["waited"][0] < cell["samples"]["e2e"][0]
    assert cell["waiting_ms"]["p50"]["value"] <= cell["ttft_ms"]["p50"]["value"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--rounds", 0), "rounds is 0, expected at least 1"),
        (("--warmup", -1), "warmup is -1, expected at least 0"),
        (("--batch", "4,0"), "batch is 0, expected whole numbers of at least 1"),
        (("--num-beams", "1,x"), "num_beams is x"),
        (("--prompt", "4", "--new-tokens", "99"), "99"),
        (("--artifact", "fast"), "no artifact 'fast'"),
        (("--inputs", "nowhere.txt"), "nowhere.txt cannot be read"),
        (("--replay", "nowhere.jsonl"), "nowhere.jsonl cannot be read"),
        (("h3llo",), "'3' at 1"),
        (("",), "an input is empty"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_measured(
    cli: Callable[..., Any], tiny_bundle: Path, arguments: tuple[object, ...], reason: str
) -> None:
    result = cli("bench", tiny_bundle, "--calls-only", *arguments)
    result.refused(reason)
    assert result.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("BUNDLE", "hello", "--prompt", 4),
        ("BUNDLE", "--prompt", 4, "--replay", "requests.jsonl"),
        ("BUNDLE", "--new-tokens", 4, "--max-new-tokens", 4),
        ("compare", "RECORD"),
        ("compare", "RECORD", "RECORD", "--fail-if", "p90 > 5"),
        ("report",),
        (),
    ],
    ids=str,
)
def test_options_that_contradict_each_other_are_wrong_usage(
    cli: Callable[..., Any], tiny_bundle: Path, record_file: Path, arguments: tuple[object, ...]
) -> None:
    places: dict[object, object] = {"BUNDLE": tiny_bundle, "RECORD": record_file}
    assert cli("bench", *(places.get(argument, argument) for argument in arguments)).code == 2


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


def test_a_record_does_not_differ_from_itself(cli: Callable[..., Any], record_file: Path) -> None:
    rules = ("--fail-if", "p90 > +5%", "--fail-if", "load.warm > 5%")
    result = cli("bench", "compare", record_file, record_file, *rules).ok
    assert "no difference shown" in result.out
    assert "slower" not in result.out
    found = cli("bench", "compare", record_file, record_file, record_file, "--json").ok.json
    assert len(found["comparisons"]) == 2
    assert found["broken"] == []


def test_a_broken_rule_ends_with_1_after_the_table(cli: Callable[..., Any], record_file: Path, tmp_path: Path) -> None:
    record, files = json.loads(record_file.read_text()), []
    for name, factor in (("before", 1), ("slower", 3)):  # calls as of a quiet machine
        for cell in record["artifacts"][0]["cells"]:
            cell["samples"]["e2e"] = [factor * (0.01 + i / 1e5) for i in range(cell["calls"])]
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(record))
    before, slower = files
    rule = ("--fail-if", "p50 > +5%")
    result = cli("bench", "compare", before, slower, *rule)
    result.refused("what --fail-if forbids", "e2e.p50 > +5%: ort-cpu-fp32, batch 1, prompt 4, 3 new changed by +200.0%")
    assert "slower" in result.out
    assert len(cli("bench", "compare", before, slower, *rule, "--json").json["broken"]) == 2
    assert "faster" in cli("bench", "compare", slower, before, *rule).ok.out


def test_a_damaged_record_is_refused(cli: Callable[..., Any], record_file: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    cli("bench", "compare", record_file, tmp_path / "bad.json").refused("has no 'artifacts'")
    cli("bench", "report", tmp_path / "bad.json").refused("has no 'artifacts'")


def test_reports_are_written(cli: Callable[..., Any], record_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "today.html"
    assert cli("bench", "report", record_file, "-o", page).ok.out == ""
    assert page.read_text().startswith("<!doctype html>")
    assert "| ort-cpu-fp32 | 5 |" in cli("bench", "report", record_file, "--format", "md").ok.out
    cli("bench", "report", record_file, "--format", "png").refused("a picture needs a file")
