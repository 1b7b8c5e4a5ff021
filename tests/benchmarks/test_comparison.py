from __future__ import annotations

import pytest
from comparison import Spread, accurate_enough, fastest, interleave, ratio, share_equal


def test_a_spread_is_median_least_and_most() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert Spread.of([1.0, 2.0]).text(2) == "1.50 (1.00-2.00)"


def test_twice_as_fast_is_half_the_seconds() -> None:
    assert ratio([1.0, 1.0], [2.0, 2.0]) == Spread(2.0, 2.0, 2.0)


def test_a_ratio_is_of_medians_and_spreads_over_single_rounds() -> None:
    ours, peers = [1.0, 2.0, 4.0], [3.0, 3.0, 3.0]
    assert ratio(ours, peers) == Spread(1.5, 0.75, 3.0)


def test_a_ratio_needs_as_many_rounds_of_both() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratio([1.0], [1.0, 2.0])


def test_engines_of_a_pair_work_right_after_one_another() -> None:
    order = interleave([("fp32", "peer fp32"), ("int8", "peer int8"), ("rows", "peer int8")])
    assert order == ["fp32", "peer fp32", "int8", "peer int8", "rows"]


def test_eight_bits_may_lose_two_tenths_of_a_point_and_no_more() -> None:
    assert accurate_enough({"fp32": 21.0, "int8": 21.2, "rows": 21.21}, "fp32") == ["fp32", "int8"]
    assert accurate_enough({"int8": 21.2, "rows": 21.5}, "fp32") == ["int8"]


def test_the_fastest_has_the_smallest_median() -> None:
    seconds = {"steady": [2.0, 2.0, 2.0], "lucky": [0.1, 3.0, 3.0], "left out": [1.0, 1.0, 1.0]}
    assert fastest(seconds, ["steady", "lucky"]) == "steady"


def test_equal_texts_are_counted_place_by_place() -> None:
    assert share_equal(["a", "b", "c", "d"], ["a", "c", "b", "d"]) == 50
