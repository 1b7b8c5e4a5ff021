"""What is measured, with which prompts, in which order."""

from __future__ import annotations

import pytest

from edgeformer.cli.benching.grid import Cell, Plan, batches, full_batches, numbers, order_of
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.errors import OptionError

CONFIG = GenerationConfig(min_new_tokens=4, max_new_tokens=4)


def plan(*cells: Cell, sources: int = 3, seed: int = 0) -> Plan:
    return Plan(cells, [[i] for i in range(sources)], rounds=5, warmup=2, seed=seed, cores=Cores(1))


@pytest.mark.parametrize(("count", "size"), [(12, 5), (3, 3), (2, 7), (1, 1)])
def test_batches_are_full_and_hold_every_source(count: int, size: int) -> None:
    found = full_batches([[i] for i in range(count)], size)
    assert {len(batch) for batch in found} == {size}
    assert len(found) == -(-count // size)
    assert {source[0] for batch in found for source in batch} == set(range(count))


def test_options_hold_numbers_in_their_order_each_once() -> None:
    assert numbers("batch", ["1,8", "64", "8"]) == [1, 8, 64]
    assert numbers("batch", None) == []
    for wrong in ("0", "x", "1,,2", "-3", "1.5"):
        with pytest.raises(OptionError, match="batch is"):
            numbers("batch", [wrong])


def test_prompts_have_their_length_and_come_from_the_vocabulary() -> None:
    cell = Cell(3, 16, CONFIG)
    ((first, *others),) = batches(plan(cell), cell, [5, 7, 11], 0)
    assert [len(row) for row in (first, *others)] == [16, 16, 16]
    assert {token for row in (first, *others) for token in row} == {5, 7, 11}
    assert first not in others


def test_prompts_are_the_same_in_every_run_and_differ_between_rounds() -> None:
    cell = Cell(2, 8, CONFIG)
    assert batches(plan(cell), cell, range(50), 1) == batches(plan(cell), cell, range(50), 1)
    assert batches(plan(cell), cell, range(50), 1) != batches(plan(cell), cell, range(50), 2)
    assert batches(plan(cell), cell, range(50), 1) != batches(plan(cell, seed=1), cell, range(50), 1)


def test_each_round_has_an_order_of_its_own_which_the_seed_repeats() -> None:
    cells = [Cell(size, 8, CONFIG) for size in range(1, 9)]
    orders = [tuple(order_of(plan(*cells), number)) for number in range(6)]
    assert all(sorted(order) == list(range(8)) for order in orders)
    assert len(set(orders)) == 6
    assert orders == [tuple(order_of(plan(*cells), number)) for number in range(6)]


def test_calls_are_counted() -> None:
    assert plan(Cell(2, 8, CONFIG)).calls == 7
    assert plan(Cell(2, None, CONFIG), Cell(1, None, CONFIG)).calls == 7 * (2 + 3)


def test_a_cell_says_how_many_tokens_are_new_only_where_that_is_certain() -> None:
    assert Cell(1, 8, CONFIG).new_tokens == 4
    assert Cell(1, 8, GenerationConfig(max_new_tokens=4)).new_tokens is None
