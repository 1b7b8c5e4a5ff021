"""The tests of significance, against every way in which ranks can fall."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edgeformer.cli.benching.significance import holm, mann_whitney


def exact(one: list[float], other: list[float]) -> float:
    """The two-sided probability by counting every division of the values into two sides."""
    values, first = np.array([*one, *other]), len(one)

    def above(chosen: tuple[int, ...]) -> float:
        mask = np.zeros(len(values), bool)
        mask[list(chosen)] = True
        left, right = values[mask][:, None], values[~mask][None]
        return float((left > right).sum() + 0.5 * (left == right).sum())

    middle = first * len(other) / 2
    distances = [abs(above(c) - middle) for c in itertools.combinations(range(len(values)), first)]
    observed = abs(above(tuple(range(first))) - middle)
    return sum(distance >= observed - 1e-9 for distance in distances) / len(distances)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16]),
        ([1, 3, 5, 7, 9, 11, 13, 15], [2, 4, 6, 8, 10, 12, 14, 16]),
        ([1, 2, 3, 4, 9, 10, 11, 12], [5, 6, 7, 8, 13, 14, 15, 16]),
        ([1, 1, 2, 2, 3, 3, 4], [2, 3, 3, 4, 4, 5, 5, 5]),
    ],
)
def test_mann_whitney_is_near_the_exact_probability(one: list[float], other: list[float]) -> None:
    assert mann_whitney(one, other) == pytest.approx(exact(one, other), abs=0.012)
    assert mann_whitney(one, other) == pytest.approx(mann_whitney(other, one), rel=1e-9)


def test_equal_values_show_nothing() -> None:
    assert mann_whitney([1.0] * 20, [1.0] * 20) == 1
    assert mann_whitney([1.0], [1.0]) == 1


def test_one_distribution_is_told_apart_as_rarely_as_the_level_says() -> None:
    rng = np.random.default_rng(0)
    found = [mann_whitney(rng.normal(size=30).tolist(), rng.normal(size=30).tolist()) for _ in range(1000)]
    assert 0.03 < np.mean(np.array(found) < 0.05) < 0.07


def test_holm_corrects_for_how_many_there_are() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []
