"""One artifact, measured in every way of a plan."""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgeformer.cli.benching.calls import measure, timed_call
from edgeformer.cli.benching.ceilings import Ceilings, shares
from edgeformer.cli.benching.encoding import Subject, open_subject, vocabulary
from edgeformer.cli.benching.energy import measure_energy
from edgeformer.cli.benching.fresh import Request as FreshRequest
from edgeformer.cli.benching.graph_weights import Weights
from edgeformer.cli.benching.grid import Cell, Plan, Source, batches
from edgeformer.cli.benching.noise import find_noise, read_load
from edgeformer.cli.benching.replay import Request, serve, summarize_replay
from edgeformer.cli.benching.starts import measure_starts
from edgeformer.cli.benching.summaries import summarize
from edgeformer.cli.benching.telemetry import find_counters, supported
from edgeformer.cli.benching.telemetry.counters import NOT_MEASURED, NOT_SUPPORTED
from edgeformer.cli.benching.telemetry.sampling import Sampler
from edgeformer.cli.benching.telemetry_records import describe
from edgeformer.cli.benching.work import first_work, role_weights, step_work
from edgeformer.cli.machine import all_cores
from edgeformer.runtime.bundle import Manifest, read_manifest
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.loading import choose
from edgeformer.runtime.machine_memory import ON_GPU

Summary = Callable[[float], dict[str, Any]]  # a cell of a record, given the clock at the beginning of the run


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """What is measured, and with what beside the calls.

    Attributes:
        folder: the bundle.
        plan: the cells.
        requests: to replay instead of rounds; none where rounds are measured.
        ceilings: of this machine, None where they were not measured.
        calls_only: leave out what is measured apart from the calls: fresh processes and energy.
    """

    folder: Path
    plan: Plan
    requests: Sequence[Request] = ()
    ceilings: Ceilings | None = None
    calls_only: bool = False

    @property
    def steps(self) -> int:
        """What progress is counted in, for one artifact."""
        return len(self.requests) * len(self.plan.cells) or self.plan.calls


def check(model: Subject, plan: Plan) -> None:
    """Make one call of each cell, so that what the model cannot do is refused before anything is measured.

    Raises:
        InputError: an input that it cannot take.
        OptionError: an option that it cannot meet, or rows that end before they have their tokens.
    """
    for cell in plan.cells:
        rows, most = cell.batch * cell.config.num_beams, model.most_rows()
        if rows > most:
            raise OptionError(
                f"a batch of {cell.batch} with {cell.config.num_beams} beams has {rows} rows, artifact "
                f"{model.artifact.name} was built for {most}"
            )
        sources = batches(plan, cell, vocabulary(model.bundle.manifest), 0)[0]
        call = timed_call(model, sources, cell.config)
        if cell.new_tokens is not None and call.tokens != cell.batch * cell.new_tokens:
            raise OptionError(
                f"prompts of {cell.prompt or 'these'} tokens leave no room for {cell.new_tokens} new ones: "
                "the model has too few positions"
            )


def measure_artifact(setup: Setup, name: str, on_done: Callable[[int], None]) -> dict[str, Any]:
    """An artifact of a record. Fresh processes load it first: a board may not hold it twice."""
    gc.collect()
    apart: dict[str, Any] = {"load": NOT_MEASURED, "memory": NOT_MEASURED}
    if not setup.calls_only:
        manifest = read_manifest(setup.folder)
        apart = measure_starts(largest(setup, manifest, name), manifest, choose(setup.folder, name))
    model = open_subject(setup.folder, name, setup.plan.cores)
    artifact, weights = model.artifact, role_weights(model.bundle, model.artifact)
    calls = measured_calls(setup, model, on_done)
    for cell, entry in zip(setup.plan.cells, calls["cells"], strict=True):
        entry["roofline"] = roofline(setup, model, weights, cell, entry)
        entry["energy"] = NOT_MEASURED if setup.calls_only else energy(setup.plan, model, cell)
    return {
        "artifact": name,
        "target": artifact.target,
        "precision": artifact.precision,
        "backend": artifact.backend,
        **apart,
        "weights": {role: dataclasses.asdict(one) for role, one in weights.items()} or NOT_SUPPORTED,
        **calls,
    }


def measured_calls(setup: Setup, model: Subject, on_done: Callable[[int], None]) -> dict[str, Any]:
    """The cells, with telemetry and noise meanwhile."""
    found = find_counters()
    with Sampler(supported(found)) as sampler:
        before = read_load()
        entries = (replayed if setup.requests else timed)(setup, model, on_done)
        after = read_load()
    sampled, cells = sampler.samples(), [entry(sampler.began) for entry in entries]
    noise = find_noise(before, after, all_cores(), sampled, cells)
    return {"cells": cells, "noise": noise, "telemetry": describe(found, sampled)}


def timed(setup: Setup, model: Subject, on_done: Callable[[int], None]) -> list[Summary]:
    """Measure in rounds; what is found is put together when nothing is measured any more."""
    calls = measure(model, setup.plan, vocabulary(model.bundle.manifest), on_done)
    return [functools.partial(summarize, cell, some) for cell, some in zip(setup.plan.cells, calls, strict=True)]


def replayed(setup: Setup, model: Subject, on_done: Callable[[int], None]) -> list[Summary]:
    served = [(cell, serve(model, setup.requests, cell, on_done)) for cell in setup.plan.cells]
    return [functools.partial(summarize_replay, cell, some) for cell, some in served]


def largest(setup: Setup, manifest: Manifest, name: str) -> FreshRequest:
    """The cell that takes most memory, as a fresh process is asked for it."""
    plan = setup.plan
    cell = max(plan.cells, key=lambda c: c.batch * c.config.num_beams * ((c.prompt or 0) + (c.new_tokens or 1)))
    sources: list[Source] = batches(plan, cell, vocabulary(manifest), 0)[0]
    return FreshRequest(
        str(setup.folder), name, plan.cores.threads, plan.cores.spin, sources, dataclasses.asdict(cell.config)
    )


def energy(plan: Plan, model: Subject, cell: Cell) -> dict[str, Any] | str:
    sources = batches(plan, cell, vocabulary(model.bundle.manifest), 0)[0]
    return measure_energy(lambda: timed_call(model, sources, cell.config).tokens, supported(find_counters()))


def roofline(setup: Setup, model: Subject, weights: dict[str, Weights], cell: Cell, entry: dict[str, Any]) -> Any:
    """Shares of the ceilings: of a step and of a first token, by their medians."""
    if setup.ceilings is None:
        return {"step": NOT_MEASURED, "first_token": NOT_MEASURED}
    ceilings = None if model.artifact.backend in ON_GPU else setup.ceilings
    tokens = sum(entry["samples"]["tokens"]) / max(1, entry["calls"] * cell.batch)

    def median(metric: str) -> float | None:
        return entry[metric]["p50"]["value"] / 1e3 if entry[metric] else None

    step = shares(step_work(model.bundle, model.artifact, weights, cell, tokens), median("itl_ms"), ceilings)
    first = shares(first_work(weights, cell), median("ttft_ms"), ceilings)
    return {"step": step, "first_token": first}
