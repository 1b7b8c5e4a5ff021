"""The paper's sinusoids, section 3.5."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from edgeformer.models.positions import sinusoidal_positions


def rotation(k: int, d_model: int) -> Tensor:
    """The matrix that takes PE(pos) to PE(pos + k): each (sin, cos) pair turned by k times its own rate."""
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        sin, cos = math.sin(k / 10000 ** (i / d_model)), math.cos(k / 10000 ** (i / d_model))
        matrix[i : i + 2, i : i + 2] = torch.tensor([[cos, sin], [-sin, cos]])
    return matrix


def test_the_table_is_the_formula_of_the_paper() -> None:
    table, d_model = sinusoidal_positions(50, 12), 12
    assert table.shape == (50, 12)
    assert table.dtype == torch.float32
    for position in range(50):
        for i in range(0, d_model, 2):
            angle = position / 10000 ** (i / d_model)
            assert table[position, i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[position, i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


def test_sines_may_stand_before_cosines() -> None:
    pairs, halves = sinusoidal_positions(50, 12), sinusoidal_positions(50, 12, interleaved=False)
    assert torch.equal(halves, torch.cat((pairs[:, 0::2], pairs[:, 1::2]), dim=1))


def test_a_far_position_is_as_exact_as_a_near_one() -> None:
    last = sinusoidal_positions(100_000, 4)[-1].tolist()
    angles = (99_999, 99_999 / 100)
    assert last == pytest.approx([f(a) for a in angles for f in (math.sin, math.cos)], abs=1e-7)


@pytest.mark.parametrize("k", [0, 1, 7, 40])
def test_moving_by_k_is_one_rotation_for_all_positions(k: int) -> None:
    table = sinusoidal_positions(200, 32).double()
    moved = table[: 200 - k] @ rotation(k, 32).T
    torch.testing.assert_close(moved, table[k:], rtol=0, atol=3e-7)


@pytest.mark.parametrize("k", [1, 7, 40])
def test_one_linear_map_learned_from_some_positions_holds_for_the_others(k: int) -> None:
    table = sinusoidal_positions(400, 8).double()
    now, later = table[: 400 - k], table[k:]
    learned = torch.linalg.lstsq(now[::10], later[::10]).solution
    torch.testing.assert_close(now @ learned, later, rtol=0, atol=1e-5)


def test_the_likeness_of_two_positions_depends_on_their_distance_alone() -> None:
    table = sinusoidal_positions(100, 16).double()
    likeness = table @ table.T
    for k in range(0, 100, 9):
        along = likeness.diagonal(k)
        torch.testing.assert_close(along, along[0].expand_as(along), rtol=0, atol=3e-6)
    assert (likeness.diagonal() > likeness.diagonal(1)[0] + 0.1).all()


def test_a_shorter_table_is_the_beginning_of_a_longer_one() -> None:
    assert torch.equal(sinusoidal_positions(10, 16), sinusoidal_positions(99, 16)[:10])
