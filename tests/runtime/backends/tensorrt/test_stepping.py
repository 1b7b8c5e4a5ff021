"""CUDA graphs: captured once a shape was seen, launched while nothing changes, dropped when something does."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from edgeformer.runtime import GenerationConfig, Model
from edgeformer.runtime.backends.tensorrt import stepping
from edgeformer.runtime.backends.tensorrt.executor import TensorRTExecutor
from edgeformer.runtime.backends.tensorrt.rows import TensorRTRows

from .conftest import Machine, MakeBundle

SOURCES = [[5, 9, 14, 3, 2], [7, 2], [4, 4, 8, 21, 12, 16, 2]]
LONG = GenerationConfig(min_new_tokens=9, max_new_tokens=10)


def executor_of(model: Model) -> TensorRTExecutor:
    assert isinstance(model.executor, TensorRTExecutor)
    return model.executor


def walk(rows: TensorRTRows, steps: int) -> list[list[int]]:
    """Ids that greedy steps choose."""
    ids, found = np.ones((len(rows.cache_lengths), 1), np.int64), []
    for _ in range(steps):
        chosen, _ = rows.step_next(ids)
        ids = chosen[:, None]
        found.append(chosen.tolist())
    return found


def test_a_shape_runs_once_then_is_captured_then_launched(on_gpu: Model, machine: Machine) -> None:
    rows = executor_of(on_gpu).start(SOURCES, 32)
    seen = []
    for _ in range(4):
        walk(rows, 1)
        seen.append((machine.cuda.captures, machine.cuda.launches))
    assert seen == [(0, 0), (1, 1), (1, 2), (1, 3)]


def test_launches_see_new_ids_and_lengths(on_gpu: Model, on_cpu: Model, machine: Machine) -> None:
    rows, expected = executor_of(on_gpu).start(SOURCES, 32), on_cpu.executor.start(SOURCES, 32)
    for turn in range(8):
        ids = np.array([[3 + turn], [40 - turn], [50 + turn]])
        np.testing.assert_allclose(rows.step(ids), expected.step(ids), atol=1e-4)
    assert machine.cuda.launches == 7


def test_another_batch_is_captured_for_itself_and_the_first_one_stays(on_gpu: Model, machine: Machine) -> None:
    rows = executor_of(on_gpu).start(SOURCES, 32)
    walk(rows, 3)
    rows.select(np.array([0, 2]))
    walk(rows, 3)
    assert machine.cuda.captures == 2
    rows.close()
    again = executor_of(on_gpu).start(SOURCES, 32)
    walk(again, 3)
    assert (machine.cuda.captures, machine.cuda.launches) == (2, 2 + 2 + 3)


def test_other_memory_is_captured_anew(on_gpu: Model, machine: Machine) -> None:
    first, second = (executor_of(on_gpu).start(SOURCES, 32) for _ in range(2))
    assert walk(first, 3) == walk(second, 3)
    assert machine.cuda.captures == 2


def test_two_sets_of_caches_are_two_graphs(machine: Machine, make_bundle: MakeBundle) -> None:
    model = machine.load(make_bundle(attention="primitive", in_place=False))
    walk(executor_of(model).start(SOURCES, 32), 8)
    assert (machine.cuda.captures, machine.cuda.launches) == (2, 6)


def test_graphs_of_more_shapes_than_are_kept_take_turns(on_gpu: Model, machine: Machine) -> None:
    executor = executor_of(on_gpu)
    decoding = []
    for batch in range(1, 13):
        rows = executor.start(SOURCES[:1] * batch, 32)
        found = walk(rows, 3)
        decoding.append([row[0] for row in found])
        rows.close()
    assert all(row == decoding[0] for row in decoding)
    assert machine.cuda.captures == 12
    assert len(executor.stepper.slots) + len(executor.stepper.spares) <= stepping.MOST_SLOTS
    # An execution context for prefill, and one for each shape whose graph is kept.
    assert len(machine.modules["tensorrt"].engines[1].contexts) <= 1 + stepping.MOST_SLOTS


def test_graphs_go_with_their_memory(on_gpu: Model) -> None:
    executor = executor_of(on_gpu)
    for batch in (1, 2, 3, 5, 9):
        several = [executor.start(SOURCES[:1] * batch, 32) for _ in range(2)]
        for rows in several:
            walk(rows, 3)
        for rows in several:
            rows.close()
    owners = {work.number for work in executor.spares}
    assert {key.owner for key, _ in executor.stepper.slots} <= owners


@pytest.mark.parametrize("what", ["the driver", "the library"])
def test_decoding_goes_on_without_graphs_where_capturing_fails(
    on_gpu: Model, on_cpu: Model, machine: Machine, words: list[str], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    if what == "the driver":
        machine.cuda.refuse_capture = True
    else:
        machine.modules["tensorrt"].engines[1].plan["no_capture"] = True
    with caplog.at_level(logging.WARNING, "edgeformer"):
        found = on_gpu.generate(words[:5], LONG)
    assert [one.token_ids for one in found] == [one.token_ids for one in on_cpu.generate(words[:5], LONG)]
    assert machine.cuda.launches == 0
    (note,) = executor_of(on_gpu).stepper.notes
    assert note.startswith("decoding goes on without CUDA graphs: ")
    assert note in caplog.text


def test_an_engine_that_says_it_cannot_be_captured_is_not(machine: Machine, make_bundle: MakeBundle) -> None:
    machine.installed = {"tensorrt_rtx": "1.7.1.116"}
    bundle: Path = make_bundle(module="tensorrt_rtx", version="1.7.1.116", plan={"capturable": False})
    model = machine.load(bundle)
    walk(executor_of(model).start(SOURCES, 32), 4)
    assert machine.cuda.captures == 0
    assert executor_of(model).stepper.notes == [
        "decoding goes on without CUDA graphs: its execution context cannot be captured"
    ]
