"""How fast an artifact is here: latencies, throughput and memory. Nothing is computed on import."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edgeformer.cli.machine import forget_peak, status_bytes
from edgeformer.runtime import GenerationConfig, Model, load

Source = str | Sequence[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Percentiles:
    """Of a latency, in milliseconds."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Percentiles | None:
        """None where nothing was measured."""
        if not seconds:
            return None
        return cls(*(float(value) for value in np.percentile(np.asarray(seconds) * 1e3, (50, 90, 99))))


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is measured of each artifact.

    Attributes:
        sources: texts or rows of ids, at least one.
        configs: searches to measure, each with each batch size.
        batch_sizes: inputs of a call.
        rounds: how often all sources are measured.
        warmup: rounds before them that are not.
        threads: cores to use, None for all.
    """

    sources: Sequence[Source]
    configs: Sequence[GenerationConfig]
    batch_sizes: Sequence[int]
    rounds: int
    warmup: int
    threads: int | None

    @property
    def calls(self) -> int:
        """Calls of `Model.generate` for one artifact."""
        batches = sum(len(full_batches(self.sources, size)) for size in self.batch_sizes)
        return batches * len(self.configs) * (self.rounds + self.warmup)


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """Calls of `Model.generate` with one batch each.

    Attributes:
        calls: how many were measured.
        call: from texts to texts, for the whole batch.
        first_token: until every row of the batch has its first token.
        per_token: each further step of the batch; None where no call had one.
        inputs_per_second, tokens_per_second: over all calls; tokens are those of the best hypotheses, ends included.
        peak_rss: most bytes that the process has held so far.
    """

    batch_size: int
    num_beams: int
    calls: int
    call_ms: Percentiles
    first_token_ms: Percentiles
    per_token_ms: Percentiles | None
    inputs_per_second: float
    tokens_per_second: float
    peak_rss: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class ArtifactMeasurements:
    """One artifact, measured in every way of a plan.

    Attributes:
        load_seconds: to check the files' hashes and load them, libraries imported and files cached.
        rss_before: bytes that the process held before, None where the system does not tell.
        peak_is_its_own: whether earlier peaks of memory were forgotten when it was loaded.
    """

    artifact: str
    target: str
    precision: str
    load_seconds: float
    rss_before: int | None
    peak_is_its_own: bool
    measurements: tuple[Measurement, ...]


def measure_artifact(
    folder: Path, name: str, plan: Plan, on_done: Callable[[int], None] = lambda done: None
) -> ArtifactMeasurements:
    """Load an artifact and measure it; load any one of its backend before, for its library to be imported.

    Args:
        folder: the bundle.
        name: the artifact.
        plan: what to measure.
        on_done: called with 1 after each of `plan.calls`.
    """
    gc.collect()
    own, before, begin = forget_peak(), status_bytes("VmRSS"), time.perf_counter()
    model = load(folder, name, threads=plan.threads)
    seconds = time.perf_counter() - begin
    found = [measure(model, config, size, plan, on_done) for size in plan.batch_sizes for config in plan.configs]
    artifact = model.artifact
    return ArtifactMeasurements(name, artifact.target, artifact.precision, seconds, before, own, tuple(found))


def full_batches(sources: Sequence[Source], batch_size: int) -> list[list[Source]]:
    """Every source at least once, in batches that are all full: the first ones fill up the last."""
    count = -(-len(sources) // batch_size)
    endless = itertools.cycle(sources)
    return [list(itertools.islice(endless, batch_size)) for _ in range(count)]


def measure(
    model: Model, config: GenerationConfig, batch_size: int, plan: Plan, on_done: Callable[[int], None]
) -> Measurement:
    calls, firsts, per_token, tokens = list[float](), list[float](), list[float](), 0
    batches = full_batches(plan.sources, batch_size)
    for round_number in range(plan.warmup + plan.rounds):
        for batch in batches:
            begin = time.perf_counter()
            generations = model.generate(batch, config, batch_size=batch_size)
            seconds = time.perf_counter() - begin
            on_done(1)
            if round_number < plan.warmup:
                continue
            timings = generations[0].timings
            calls.append(seconds)
            firsts.append(timings.first_token)
            if timings.steps > 1:
                per_token.append((timings.total - timings.first_token) / (timings.steps - 1))
            tokens += sum(len(g.token_ids) + (g.finish_reason == "stop") for g in generations)
    call_ms, first_token_ms = Percentiles.of(calls), Percentiles.of(firsts)
    if call_ms is None or first_token_ms is None:
        raise ValueError(f"{plan.rounds} rounds of {len(plan.sources)} sources measure nothing")
    return Measurement(
        batch_size=batch_size,
        num_beams=config.num_beams,
        calls=len(calls),
        call_ms=call_ms,
        first_token_ms=first_token_ms,
        per_token_ms=Percentiles.of(per_token),
        inputs_per_second=len(calls) * batch_size / sum(calls),
        tokens_per_second=tokens / sum(calls),
        peak_rss=status_bytes("VmHWM"),
    )
