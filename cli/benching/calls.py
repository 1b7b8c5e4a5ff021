"""Calls of a model, each with what it took."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from edgeformer.cli.benching.grid import Plan, Source, batches, order_of
from edgeformer.runtime import Generation, GenerationConfig
from edgeformer.runtime.results import Timings

Clock = Callable[[], float]


class Generating(Protocol):
    """What is measured: a loaded model, or one in its place."""

    def generate(
        self, inputs: Sequence[Source], config: GenerationConfig | None = None, *, batch_size: int = ...
    ) -> list[Generation]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call of `generate`, which takes a batch from texts or ids to texts.

    Attributes:
        began: seconds since the run began.
        seconds: of the whole call.
        first: until every row had its first token.
        steps: between the tokens that follow; each is of the whole batch.
        tokens: of the best hypotheses, ends included.
    """

    began: float
    seconds: float
    first: float
    steps: tuple[float, ...]
    tokens: int


def timed_call(
    model: Generating, sources: Sequence[Source], config: GenerationConfig, clock: Clock = time.perf_counter
) -> Call:
    begin = clock()
    generations = model.generate(sources, config, batch_size=len(sources))
    seconds = clock() - begin
    timings = generations[0].timings
    tokens = sum(len(g.token_ids) + (g.finish_reason == "stop") for g in generations)
    return Call(begin, seconds, timings.first_token, steps_of(timings), tokens)


def steps_of(timings: Timings) -> tuple[float, ...]:
    """Seconds between one step's tokens and the next one's."""
    return tuple(after - before for before, after in itertools.pairwise(timings.ends))


def measure(
    model: Generating,
    plan: Plan,
    vocabulary: Sequence[int],
    on_done: Callable[[int], None] = lambda done: None,
    clock: Clock = time.perf_counter,
) -> list[list[Call]]:
    """The calls of each cell of a plan, warm-up left out; every round takes the cells in an order of its own.

    Args:
        model: what to measure.
        plan: the cells, rounds and seed.
        vocabulary: ids that prompts of a given length are cut from.
        on_done: called with 1 after each of `plan.calls`.
        clock: in seconds.
    """
    found: list[list[Call]] = [[] for _ in plan.cells]
    for round_number in range(plan.warmup + plan.rounds):
        for index in order_of(plan, round_number):
            cell = plan.cells[index]
            for sources in batches(plan, cell, vocabulary, round_number):
                call = timed_call(model, sources, cell.config, clock)
                on_done(1)
                if round_number >= plan.warmup:
                    found[index].append(call)
    return found
