"""Percentiles and their intervals: what they are, what they cover, and when there are too few samples for one."""

from __future__ import annotations

import numpy as np
import pytest

from edgeformer.cli.benching.intervals import bounded, far_out, percentile_draws, percentiles, rate, rate_draws, ratio


def test_percentiles_are_samples_that_occurred() -> None:
    found = percentiles([[float(i)] for i in range(1, 102)])
    assert [interval.value for interval in found] == [51, 91, 100]
    reference = np.percentile(np.arange(1.0, 102.0), [50, 90, 99], method="inverted_cdf")
    assert [interval.value for interval in found] == reference.tolist()


def test_an_interval_holds_its_value_and_narrows_with_more_calls() -> None:
    rng = np.random.default_rng(0)
    few, many = (percentiles([[v] for v in rng.normal(10, 1, n)], [50])[0] for n in (40, 4000))
    for interval in (few, many):
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low <= interval.value <= interval.high
    assert many.high - many.low < (few.high - few.low) / 4


@pytest.mark.parametrize("percent", [50, 90])
def test_intervals_cover_the_truth_about_as_often_as_they_say(percent: float) -> None:
    rng = np.random.default_rng(1)
    truth = -np.log(1 - percent / 100)  # of the exponential distribution
    covered = 0
    for _ in range(100):
        (interval,) = percentiles([[v] for v in rng.exponential(size=80)], [percent])
        assert interval.low is not None
        assert interval.high is not None
        covered += interval.low <= truth <= interval.high
    assert covered >= 0.86 * 100


def test_too_few_samples_bound_nothing() -> None:
    assert bounded(0.5, 5) == (False, False)
    assert bounded(0.5, 6) == (True, True)
    assert bounded(0.99, 367) == (True, False)
    assert bounded(0.99, 368) == (True, True)
    half, _, highest = percentiles([[float(i)] for i in range(20)])
    assert half.low is not None
    assert half.high is not None
    assert highest.high is None


def test_steps_of_a_call_are_drawn_together() -> None:
    # Ten calls, each of equal steps: a hundred steps say no more of the median than the ten calls do.
    calls = [[float(i)] * 10 for i in range(10)]
    together = percentile_draws(calls, [50])[0].resampled.std()
    apart = percentile_draws([[v] for call in calls for v in call], [50])[0].resampled.std()
    assert together > 2 * apart


def test_calls_may_have_different_numbers_of_steps() -> None:
    (interval,) = percentiles([[1.0], [2.0, 2.0, 2.0], [3.0] * 4], [50])
    assert interval.value == 2


def test_a_rate_is_of_sums() -> None:
    found = rate([10, 30], [1.0, 1.0])
    assert found.value == 20
    assert found.low == 10
    assert found.high == 30
    single = rate([10], [2.0])
    assert (single.value, single.low, single.high) == (5, None, None)


def test_a_ratio_of_equal_calls_holds_one() -> None:
    rng = np.random.default_rng(2)
    one, other = (rate_draws([1] * 200, rng.normal(1, 0.02, 200).tolist(), seed) for seed in (0, 1))
    found = ratio(one, other)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1 < found.high


def test_far_out_calls_are_counted_and_kept() -> None:
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 9.0]
    assert far_out(values) == 1
    assert far_out(values[:5]) == 0
    assert far_out([1.0, 9.0]) == 0
    assert percentiles([[v] for v in values])[2].value == 9
