"""Energy of calls, from counters of energy and of power."""

from __future__ import annotations

import pytest

from edgeformer.cli.benching.energy import choose, mean_power, measure_energy
from edgeformer.cli.benching.telemetry.counters import Counter, CounterError


class Machine:
    """Draws 30 W in its processor and 10 W in its memory; a call takes half a second and gives 100 tokens."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def call(self) -> int:
        self.now += 0.5
        return 100


def test_energy_of_counters_is_exact() -> None:
    machine = Machine()
    counters = [
        Counter("rapl.package-0", "energy", lambda: 1000 + 30 * machine.now, total=True),
        Counter("rapl.dram", "energy", lambda: 7 + 10 * machine.now, total=True),
        Counter("rapl.package-0.core", "energy", lambda: 20 * machine.now),
        Counter("cpu.clock", "clock", lambda: 3000.0),
    ]
    found = measure_energy(machine.call, counters, seconds=2.0, clock=machine.clock)
    assert found == {
        "joules_per_token": pytest.approx(0.2),
        "watts": pytest.approx(40),
        "seconds": 2.0,
        "calls": 4,
        "tokens": 400,
        "counters": ["rapl.package-0", "rapl.dram"],
    }


def test_power_is_taken_over_the_time() -> None:
    machine = Machine()
    counters = [Counter("rail.VDD_IN", "power", lambda: 12.0, total=True)]
    found = measure_energy(machine.call, counters, seconds=1.0, clock=machine.clock)
    assert isinstance(found, dict)
    assert found["watts"] == pytest.approx(12)
    assert found["joules_per_token"] == pytest.approx(12 * 1.0 / 200)


@pytest.mark.parametrize("kind", ["none", "fails"])
def test_without_a_counter_energy_is_not_supported(kind: str) -> None:
    def fail() -> float:
        raise CounterError("gone")

    counters = [Counter("gpu0.energy", "energy", fail, total=True)] if kind == "fails" else []
    machine = Machine()
    assert measure_energy(machine.call, counters, 1.0, machine.clock) == "not supported"


def test_a_part_that_counts_energy_is_not_counted_again_by_its_power() -> None:
    named = [
        Counter("gpu0.power", "power", lambda: 1.0, total=True),
        Counter("gpu0.energy", "energy", lambda: 1.0, total=True),
        Counter("gpu1.power", "power", lambda: 1.0, total=True),
        Counter("rapl.package-0", "energy", lambda: 1.0, total=True),
    ]
    assert [counter.name for counter in choose(named)] == ["gpu0.energy", "gpu1.power", "rapl.package-0"]


def test_mean_power_weighs_by_time() -> None:
    assert mean_power([0, 1, 3], [10, 10, 20]) == pytest.approx((10 + 30) / 3)
    assert mean_power([0, 1, 2], [10, None, 20]) == pytest.approx(15)
    assert mean_power([0], [10]) == 10
    assert mean_power([0, 1], [None, None]) is None
