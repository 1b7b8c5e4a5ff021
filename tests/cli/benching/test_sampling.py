"""The thread beside a run: what it reads, when, and that it bounds its own cost."""

from __future__ import annotations

import threading

import pytest

from edgeformer.cli.benching.telemetry.counters import Counter, CounterError
from edgeformer.cli.benching.telemetry.sampling import MOST_SHARE, Sampler, pause


def test_every_counter_has_a_value_at_every_time() -> None:
    enough, values = threading.Event(), iter(range(1000))

    def growing() -> float:
        value = next(values)
        if value >= 5:
            enough.set()
        return float(value)

    def failing() -> float:
        raise CounterError("gone")

    counters = [Counter("grows", "energy", growing), Counter("fails", "power", failing)]
    with Sampler(counters, period=0.001) as sampler:
        assert enough.wait(30)
    samples = sampler.samples()
    grows, fails = samples.series
    assert len(samples.times) == len(grows.values) == len(fails.values) >= 6
    assert list(samples.times) == sorted(samples.times)
    assert list(grows.values) == [float(i) for i in range(len(grows.values))]
    assert set(fails.values) == {None}
    assert samples.overhead == samples.busy_seconds / samples.seconds


def test_without_counters_no_thread_runs() -> None:
    before = threading.active_count()
    with Sampler([]) as sampler:
        assert threading.active_count() == before
    assert sampler.samples().times == ()
    assert sampler.samples().overhead == 0


@pytest.mark.parametrize("took", [0.0, 1e-6, 1e-4, 0.02, 1.0])
def test_reading_never_takes_more_than_its_share(took: float) -> None:
    waited = pause(took, period=0.1)
    assert took / (took + waited) <= MOST_SHARE * (1 + 1e-9)
    assert took + waited >= 0.1 - 1e-9


def test_the_thread_ends_with_an_error_in_the_run() -> None:
    sampler = Sampler([Counter("one", "power", lambda: 1.0)])
    with pytest.raises(ZeroDivisionError), sampler:
        _ = 1 / 0
    assert not sampler.thread.is_alive()
