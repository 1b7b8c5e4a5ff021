"""Comparisons and the rules that a change must not break."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from edgeformer.cli.benching.comparing import compare
from edgeformer.cli.benching.gates import NAMES, Rule, RuleError, broken, parse
from edgeformer.runtime.errors import InputError

MakeRecord = Callable[..., dict[str, Any]]


def breaches(rule: str, base: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return list(broken(parse(rule), compare(("a", base), ("b", other)).pairs))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("p90 > +5%", Rule("e2e.p90", ">", 5)),
        ("itl.p99>=5 %", Rule("itl.p99", ">=", 5)),
        ("  tokens_per_second < -3.5% ", Rule("tokens_per_second", "<", -3.5)),
        ("memory.host <= 0%", Rule("memory.host", "<=", 0)),
    ],
)
def test_rules_are_read(text: str, rule: Rule) -> None:
    assert parse(text) == rule
    assert parse(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("p95 > 5%", "'p95' is no metric"),
        ("p90 > 5", "is no rule"),
        ("p90 = 5%", "is no rule"),
        ("p90 > 5% and p99 > 5%", "is no rule"),
        ("", "is no rule"),
    ],
)
def test_what_is_no_rule_is_refused_with_what_one_looks_like(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as error:
        parse(text)
    assert "p90" in str(error.value)


def test_a_slowdown_breaks_a_rule_and_a_rerun_does_not(make_record: MakeRecord) -> None:
    base, same, slower = make_record(seed=1), make_record(seed=20), make_record(0.022, seed=20)
    for rule in ("p50 > +5%", "p90 > +5%", "ttft.p50 > +5%", "itl.p50 > +5%", "tokens_per_second < -5%"):
        assert breaches(rule, base, same) == []
        found = breaches(rule, base, slower)
        assert len(found) == 2, rule  # in both cells
        assert "batch 8, prompt 16, 16 new changed by" in found[1]
    assert breaches("p90 > +20%", base, slower) == []
    assert breaches("p50 < -5%", slower, base) != []


def test_a_change_that_may_be_chance_breaks_nothing(make_record: MakeRecord) -> None:
    base, other = make_record(seed=1, count=4), make_record(0.0204, seed=2, count=4)
    found = compare(("a", base), ("b", other))
    assert any(difference.ratio.value > 1.0 for difference in found.differences)
    assert breaches("p50 > 0%", base, other) == []


def test_what_is_measured_once_is_compared_as_it_is(make_record: MakeRecord) -> None:
    base = make_record()
    other = copy.deepcopy(base)
    other["artifacts"][0]["memory"]["host_peak_bytes"] = 120_000_000
    other["artifacts"][0]["load"]["warm"]["load_seconds"] = 0.6
    other["artifacts"][0]["cells"][0]["energy"]["joules_per_token"] *= 2
    assert breaches("memory.host > +10%", base, other) == ["memory.host > +10%: ort-cpu-fp32 changed by +20.0%"]
    assert breaches("load.warm > +10%", base, other) == ["load.warm > +10%: ort-cpu-fp32 changed by +50.0%"]
    assert len(breaches("joules_per_token > +10%", base, other)) == 1


def test_a_rule_about_what_was_not_measured_is_an_error(make_record: MakeRecord) -> None:
    base = make_record()
    for rule in ("load.cold > 5%", "memory.device > 5%"):
        with pytest.raises(RuleError, match="a record says 'not"):
            breaches(rule, base, base)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"load.cold", "memory.device"}))
def test_every_metric_can_be_ruled_on(make_record: MakeRecord, name: str) -> None:
    base = make_record()
    assert breaches(f"{name} > +1%", base, base) == []


def test_records_without_a_common_cell_cannot_be_compared(make_record: MakeRecord) -> None:
    base, other = make_record(), make_record()
    for cell in other["artifacts"][0]["cells"]:
        cell["batch"] = 5
    with pytest.raises(InputError, match="no cell in common"):
        compare(("a", base), ("b", other))


def test_two_artifacts_can_be_compared_where_each_is_alone(make_record: MakeRecord) -> None:
    one, two = make_record(artifact="ort-cpu-fp32"), make_record(0.01, artifact="ort-cpu-int8")
    assert {d.verdict for d in compare(("a", one), ("b", two)).differences} == {"faster"}


def test_noise_and_other_machines_are_remarked(make_record: MakeRecord) -> None:
    base, other = make_record(), make_record(0.03, seed=3)
    other["machine"]["cpu"] = "Another processor"
    other["artifacts"][0]["noise"] = {
        "noisy": True, "findings": [{"kind": "load", "said": "other processes kept 1.00 cores busy"}],
        "other_cores": 1.0, "stolen_share": 0.0,
    }  # fmt: skip
    found = compare(("before", base), ("after", other))
    assert {difference.verdict for difference in found.differences} == {"slower (noisy)"}
    assert any("after is noisy" in remark and "1.00 cores" in remark for remark in found.remarks)
    assert any("machine.cpu differs: A processor and Another processor" in remark for remark in found.remarks)
    assert len(found.values()["differences"]) == 6
