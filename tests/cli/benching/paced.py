"""A model that takes the time that a test gives it, on a clock that a test owns."""

from __future__ import annotations

import random
from collections.abc import Sequence

from edgeformer.runtime import Generation, GenerationConfig
from edgeformer.runtime.results import Hypothesis, Timings


class Paced:
    """Tokens at a steady pace, disturbed by a few percent; `clock` and `sleep` move its own time."""

    def __init__(self, pace: float, seed: int, *, spread: float = 0.03, first: float = 2.0) -> None:
        self.pace, self.rng, self.spread, self.first = pace, random.Random(seed), spread, first
        self.now = 0.0
        self.batches: list[list[object]] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def generate(
        self, inputs: Sequence[object], config: GenerationConfig | None = None, *, batch_size: int = 64
    ) -> list[Generation]:
        assert config is not None
        assert batch_size >= len(inputs)
        self.batches.append(list(inputs))
        begin, ends = self.now, list[float]()
        for step in range(config.max_new_tokens or 1):
            steady = self.pace * (self.first if step == 0 else 1.0) * (1 + len(inputs) / 10)
            self.now += steady * self.rng.lognormvariate(0, self.spread)
            ends.append(self.now - begin)
        timings = Timings(0.0, ends[0], ends[-1], len(ends), tuple(ends))
        hypothesis = Hypothesis((1,) * len(ends), -1.0, "length")
        return [Generation((hypothesis,), timings) for _ in inputs]
