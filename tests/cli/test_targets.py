"""`edgeformer targets`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgeformer.exporter.targets import TARGETS


def test_the_table_has_every_target_and_where_it_has_run(cli: Callable[..., Any]) -> None:
    out = cli("targets").ok.out
    for target in TARGETS.values():
        (line,) = [line for line in out.splitlines() if line.startswith(f"{target.name} ")]
        assert ", ".join(target.precisions) in line
        assert target.has_run in line


def test_json_has_every_field(cli: Callable[..., Any]) -> None:
    found = cli("targets", "--json").ok.json
    assert [row["name"] for row in found] == list(TARGETS)
    assert found[0] == {
        "name": "ort-cpu",
        "backend": "ort-cpu",
        "precisions": list(TARGETS["ort-cpu"].precisions),
        "attention": TARGETS["ort-cpu"].attention,
        "has_run": TARGETS["ort-cpu"].has_run,
    }
