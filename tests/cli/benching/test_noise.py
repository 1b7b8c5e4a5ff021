"""What disturbs a run is found, and a quiet run is not accused."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.benching.noise import Load, find_noise, read_load
from edgeformer.cli.benching.telemetry.counters import Counter, Kind
from edgeformer.cli.benching.telemetry.sampling import Samples, Series

TICK = os.sysconf("SC_CLK_TCK")
NOTHING = Samples((), (), 0.0, 0.0)
QUIET = (Load(0.0, 0.0, 0.0, 0.0), Load(10.0, 9.9, 10.2, 0.0))  # seconds on a clock, own, busy, stolen


def kinds(found: dict[str, Any]) -> list[str]:
    return [finding["kind"] for finding in found["findings"]]


def sampled(name: str, kind: Kind, *values: float | None) -> Samples:
    return Samples(tuple(map(float, range(len(values)))), (Series(Counter(name, kind, lambda: 0.0), values),), 1.0, 0.0)


def cell(*seconds: float, **more: Any) -> dict[str, Any]:
    return {"samples": {"began": list(map(float, range(len(seconds)))), "e2e": list(seconds)}, **more}


def test_a_quiet_run_is_quiet() -> None:
    found = find_noise(*QUIET, 4, NOTHING, [cell(*[1.0, 1.01, 0.99, 1.0] * 10)])
    assert (found["noisy"], found["findings"]) == (False, [])
    assert found["other_cores"] == pytest.approx(0.03)


def stat(user: float, steal: float = 0.0) -> str:
    """The kernel's first line after so many seconds of work and of theft."""
    fields = [int(user * TICK), 0, 0, 12345, 17, 0, 0, int(steal * TICK), 0, 0]
    return f"cpu  {' '.join(map(str, fields))}\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def test_another_process_on_a_core_is_found(plant: Callable[[Mapping[str, str]], Path]) -> None:
    before = read_load(plant({"proc/stat": stat(100.0)}))
    after = read_load(plant({"proc/stat": stat(120.0)}))
    assert after.busy is not None
    assert before.busy is not None
    assert after.busy - before.busy == pytest.approx(20)
    # Ten seconds on a clock, in which this process worked for ten and somebody for ten others.
    early = Load(0.0, 0.0, before.busy, before.stolen)
    found = find_noise(early, Load(10.0, 10.0, after.busy, after.stolen), 4, NOTHING, [])
    assert kinds(found) == ["load"]
    assert found["other_cores"] == pytest.approx(1.0)
    assert "1.00 cores" in found["findings"][0]["said"]


def test_a_hypervisor_that_steals_is_found() -> None:
    found = find_noise(QUIET[0], Load(10.0, 9.9, 10.0, 2.0), 4, NOTHING, [])
    assert kinds(found) == ["steal"]
    assert found["stolen_share"] == pytest.approx(0.05)


def test_a_machine_that_does_not_tell_is_not_called_quiet(plant: Callable[[Mapping[str, str]], Path]) -> None:
    load = read_load(plant({}))
    assert (load.busy, load.stolen) == (None, None)
    found = find_noise(Load(0.0, 0.0, None, None), Load(10.0, 1.0, None, None), 4, NOTHING, [])
    assert (found["other_cores"], found["stolen_share"]) == ("not supported", "not supported")
    short = find_noise(QUIET[0], Load(0.1, 0.1, 0.5, 0.0), 4, NOTHING, [])
    assert (short["other_cores"], short["noisy"]) == ("too short to tell", False)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (sampled("throttling.0.Processor", "throttling", 0, 0, 1, 0), ["throttling"]),
        (sampled("throttling.0.Processor", "throttling", 0, None, 0), []),
        (sampled("cpu.throttled", "events", 12, 12, 15), ["throttling"]),
        (sampled("cpu.throttled", "events", 12, 12, 12), []),
        (sampled("cpu.clock", "clock", *[3000.0] * 30, *[2000.0] * 30), ["clocks"]),
        (sampled("cpu.clock", "clock", *[3000.0] * 60, 800.0), []),
        (sampled("cpu.clock", "clock", *[3000.0, 3050.0] * 20), []),
        (sampled("temperature.cpu", "temperature", *[40.0] * 20, *[80.0] * 20), []),
    ],
)
def test_throttling_and_clocks_that_moved_are_found(samples: Samples, expected: list[str]) -> None:
    assert kinds(find_noise(*QUIET, 4, samples, [])) == expected


def test_calls_that_became_slower_are_found_across_cells_of_different_speed() -> None:
    fast, slow = [1.0, 1.01] * 10 + [1.2, 1.21] * 10, [7.0, 7.1] * 10 + [8.5, 8.4] * 10
    assert kinds(find_noise(*QUIET, 4, NOTHING, [cell(*fast), cell(*slow)])) == ["drift"]
    assert kinds(find_noise(*QUIET, 4, NOTHING, [cell(*[1.0, 1.2] * 20)])) == []
    assert kinds(find_noise(*QUIET, 4, NOTHING, [cell(*fast, replay=True)])) == []
