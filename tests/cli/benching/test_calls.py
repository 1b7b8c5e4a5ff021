"""Calls that are timed, and what two runs of them say of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgeformer.cli.benching.calls import Call, measure, timed_call
from edgeformer.cli.benching.comparing import compare
from edgeformer.cli.benching.grid import Cell, Plan
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.cores import Cores

from .paced import Paced

CONFIG = GenerationConfig(min_new_tokens=16, max_new_tokens=16)
CELLS = (Cell(1, 16, CONFIG), Cell(8, 16, CONFIG))
PLAN = Plan(CELLS, [], rounds=60, warmup=2, seed=0, cores=Cores(1))
MakeRecord = Callable[..., dict[str, Any]]


def run(make_record: MakeRecord, pace: float, seed: int) -> dict[str, Any]:
    model = Paced(pace, seed)
    calls = measure(model, PLAN, range(100), clock=model.clock)
    return make_record(calls={cell.batch: some for cell, some in zip(CELLS, calls, strict=True)})


def test_a_call_has_a_first_token_and_steps_that_add_up() -> None:
    model = Paced(0.001, 0)
    call = timed_call(model, [[1], [2]], CONFIG, model.clock)
    assert len(call.steps) == 15
    assert call.first + sum(call.steps) == pytest.approx(call.seconds)
    assert call.tokens == 2 * 16
    assert call.first > 1.5 * max(call.steps)


def test_every_cell_is_measured_in_every_round_but_those_of_warm_up() -> None:
    model, done = Paced(0.001, 0), list[int]()
    found = measure(model, PLAN, range(100), done.append, model.clock)
    assert [len(calls) for calls in found] == [60, 60]
    assert sum(done) == PLAN.calls == 2 * 62
    sizes = [len(batch) for batch in model.batches]
    assert sorted(sizes) == [1] * 62 + [8] * 62
    assert all(sizes[i] != sizes[i + 1] for i in range(0, len(sizes), 2))  # both in each round
    assert len({sizes[i] for i in range(0, len(sizes), 2)}) == 2  # either may come first
    warm = max(call.began for calls in found for call in calls)
    assert min(call.began for calls in found for call in calls) > 0 < warm


def test_the_same_bundle_twice_gives_intervals_that_overlap(make_record: MakeRecord) -> None:
    first, second = run(make_record, 0.001, seed=1), run(make_record, 0.001, seed=2)
    for one, two in zip(first["artifacts"][0]["cells"], second["artifacts"][0]["cells"], strict=True):
        for metric in ("ttft_ms", "itl_ms", "e2e_ms"):
            left, right = one[metric]["p50"], two[metric]["p50"]
            assert left["low"] <= right["high"]
            assert right["low"] <= left["high"]
    found = compare(("first", first), ("second", second))
    assert {difference.verdict for difference in found.differences} == {"no difference shown"}


@pytest.mark.parametrize(("factor", "verdict"), [(1.1, "slower"), (1 / 1.1, "faster")])
def test_a_slowdown_of_a_tenth_in_the_step_is_found(make_record: MakeRecord, factor: float, verdict: str) -> None:
    found = compare(("before", run(make_record, 0.001, 1)), ("after", run(make_record, 0.001 * factor, 2)))
    assert len(found.differences) == 2 * 3
    for difference in found.differences:
        assert difference.verdict == verdict, difference
        assert difference.ratio.value == pytest.approx(factor, rel=0.03)


def test_one_token_is_a_call_without_steps() -> None:
    model = Paced(0.001, 0)
    call = timed_call(model, [[1]], GenerationConfig(max_new_tokens=1), model.clock)
    assert call == Call(0.0, call.seconds, call.seconds, (), 1)
