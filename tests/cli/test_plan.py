"""`edgeformer plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import memory_plan


def test_the_table_says_what_each_artifact_takes_and_what_fits(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    result = cli("plan", tiny_bundle, "--batch", 4, "--capacity", 20, "--free-memory", "1G").ok
    heading, _, *rows = [line for line in result.out.splitlines() if line]
    assert heading.split()[:3] == ["artifact", "rows", "tokens"]
    assert [row.split()[:3] for row in rows[:-1]] == [
        [name, "4", "20"] for name in ("onnx", "ort-cpu-fp32", "ort-cpu-int8")
    ]
    assert all(" yes " in row for row in rows[:-1])
    assert rows[-1] == "free: memory as given"
    assert result.err == ""


def test_what_does_not_fit_is_no_error_here(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    out = cli("plan", tiny_bundle, "--artifact", "onnx", "--free-memory", "10K").ok.out
    assert " NO " in out
    assert "ort-cpu" not in out


def test_json_has_the_numbers(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    found = cli(
        "plan", tiny_bundle, "--artifact", "ort-cpu-fp32", "--batch", 3, "--free-memory", "64M", "--json"
    ).ok.json
    (plan,) = found["plans"]
    assert plan["load"] == {"batch": 3, "capacity": 32, "source_len": 32}  # the model has no more positions
    assert plan["total"] == sum(plan["needs"].values())
    assert plan["free"] == {"bytes": 64 << 20, "of": "memory as given"}
    assert plan["fits"] is True
    assert plan["largest_batch"] > 3


def test_without_a_size_this_machine_is_asked(
    cli: Callable[..., Any], tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_plan, "available_memory", lambda: 123_000_000)
    assert "123.0 MB" in cli("plan", tiny_bundle).ok.out
    monkeypatch.setattr(memory_plan, "available_memory", lambda: None)
    assert " unknown " in cli("plan", tiny_bundle).ok.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "0"], "batch is 0, expected at least 1"),
        (["--capacity", "33"], "capacity is 33, artifact onnx takes up to 32"),
        (["--source-len", "33"], "source_len is 33, artifact onnx takes up to 32"),
        (["--free-memory", "lots"], "--free-memory is 'lots', expected a number of bytes"),
        (["--artifact", "none"], "has no artifact 'none'; it has: onnx, ort-cpu-fp32, ort-cpu-int8"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cli: Callable[..., Any], tiny_bundle: Path, arguments: list[str], said: str
) -> None:
    cli("plan", tiny_bundle, *arguments).refused(said)
