"""`edgeformer targets`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgeformer.exporter.targets import FEATURES, TARGETS


def test_the_table_has_every_target_and_where_it_has_run(cli: Callable[..., Any]) -> None:
    out = cli("targets").ok.out
    for target in TARGETS.values():
        (line,) = [line for line in out.splitlines() if line.startswith(f"{target.name} ")]
        assert " ".join(target.precisions) in line
        assert target.attention[0] in line
        word = line.split()[-1]
        assert f"{word}: {target.has_run}" in out


def test_the_table_fits_a_wide_terminal(cli: Callable[..., Any]) -> None:
    assert max(map(len, cli("targets").ok.out.splitlines())) <= 120


def test_json_has_every_field(cli: Callable[..., Any]) -> None:
    found = cli("targets", "--json").ok.json
    assert [row["name"] for row in found] == list(TARGETS)
    assert found[0]["precisions"] == list(TARGETS["ort-cpu"].precisions)
    assert found[0]["module"] is None
    by_name = {row["name"]: row for row in found}
    assert by_name["jetson-orin-jp6"]["compute_capabilities"] == ["8.7"]
    assert by_name["jetson-orin-jp6"]["features"] == sorted(TARGETS["jetson-orin-jp6"].features)


@pytest.mark.parametrize("name", TARGETS)
def test_one_target_is_shown_with_everything(cli: Callable[..., Any], name: str) -> None:
    target = TARGETS[name]
    out = cli("targets", name).ok.out
    for word in (target.has_run, *target.precisions, *target.attention, *target.compute_capabilities, *target.notes):
        assert word in out
    for feature in target.features:
        assert f"has        {FEATURES[feature].meaning}\n" in out
    assert cli("targets", name, "--json").ok.json["name"] == name


def test_what_a_target_lacks_is_shown_with_the_version_that_brings_it(cli: Callable[..., Any]) -> None:
    out = cli("targets", "jetson-orin-jp6").ok.out
    assert "lacks      ONNX Attention becomes a fused layer (from 10.14)\n" in out
    assert "lacks      causal attention aligned to the cache's end (from 11.4.1)\n" in out


def test_a_target_that_does_not_exist_is_refused(cli: Callable[..., Any]) -> None:
    cli("targets", "ort_cpu").refused("there is no target 'ort_cpu'", "did you mean ort-cpu?")
