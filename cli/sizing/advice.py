"""What to do with a plan: the precision that rounds least of those that fit, and the commands that make it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from edgeformer.cli.printing import size
from edgeformer.cli.sizing.planning import Question, Sized
from edgeformer.runtime.loading import PRECISIONS
from edgeformer.runtime.memory_needs import Load

EXPORT_BYTES = 8  # of memory for each weight, as `exporter.checkpoint_memory` asks for; a test holds this to it


@dataclasses.dataclass(frozen=True, slots=True)
class Advice:
    """What is recommended.

    Attributes:
        precision: None where nothing fits.
        reason: in a sentence.
        commands: the next ones, with what to know about each behind a `#`.
    """

    precision: str | None
    reason: str
    commands: tuple[str, ...]


def advise(question: Question, plans: Sequence[Sized], model: Path, is_bundle: bool) -> Advice:
    """What rounds least among what fits and can be built there."""
    ranked = sorted(plans, key=lambda plan: PRECISIONS.index(plan.precision))
    chosen = next((plan for plan in ranked if plan.fits is not False and buildable(plan)), None)
    if chosen is None:
        return Advice(None, nothing_fits(question, plans), ())
    return Advice(chosen.precision, reason(chosen, ranked), tuple(commands(question, chosen, model, is_bundle)))


def buildable(plan: Sized) -> bool:
    return plan.building is None or plan.free is None or plan.building <= plan.free.bytes


def nothing_fits(question: Question, plans: Sequence[Sized]) -> str:
    """The nearest that would fit."""
    smallest = min(plans, key=lambda plan: plan.needs.total)
    rows = smallest.load.batch
    if smallest.fits:
        return (
            f"{smallest.precision} fits, but a build on the device needs about {size(smallest.building or 0)}, more "
            "than it has: build on one of the same GPU and version with more memory"
        )
    if smallest.largest_batch:
        return f"nothing fits; in {smallest.precision} {smallest.largest_batch} rows would"
    if fitting := (smallest.largest_capacity or {}).get(1):
        return f"nothing fits; in {smallest.precision} one row of {fitting} tokens would"
    return f"nothing fits: {smallest.precision} needs {size(smallest.needs.total)} for {rows} of so many tokens"


def reason(chosen: Sized, ranked: Sequence[Sized]) -> str:
    known = "" if chosen.fits else "; whether it fits is unknown: say --free-memory"
    said = f"{chosen.precision}: of what fits it rounds least{known}"
    faster = [plan for plan in ranked if plan.fits is not False and buildable(plan) and quickness(plan) > 0]
    if not faster or not (mine := quickness(chosen)):
        return said
    best = max(faster, key=quickness)
    gain = quickness(best) / mine
    return f"{said}; {best.precision} could be up to {gain:.1f} times as fast" if gain >= 1.1 else said


def quickness(plan: Sized) -> float:
    """Steps a second at most, or calls of an encoder; 0 where they are not known."""
    seconds = (plan.speed.step or plan.speed.first).seconds
    return 1 / seconds if seconds else 0.0


def commands(question: Question, chosen: Sized, model: Path, is_bundle: bool) -> list[str]:
    target, bundle = question.target, str(model) if is_bundle else "BUNDLE"
    found = []
    if not is_bundle:
        needed = size(EXPORT_BYTES * question.shape.parameters)
        found.append(f"edgeformer export {shlex.quote(str(model))} -o BUNDLE  # takes about {needed} of memory")
    if chosen.built is None:
        there = "  # on the device: TensorRT builds for the GPU that it finds" if target.module == "tensorrt" else ""
        found.append(
            " ".join(["edgeformer optimize", shlex.quote(bundle), *optimize_options(question, chosen)]) + there
        )
    name = chosen.built or f"{target.name}-{chosen.precision}"
    found.append(
        f"edgeformer bench {shlex.quote(bundle)} --artifact {name} --batch {chosen.load.batch}  # what it does"
    )
    return found


def optimize_options(question: Question, chosen: Sized) -> list[str]:
    target, load = question.target, chosen.load
    options = [f"--target {target.name}", f"--precision {chosen.precision}"]
    if target.module is None:
        return options
    if target.module == "tensorrt_rtx":
        options.append(f"--compute-capability {question.device.compute_capability}")
    return [*options, *limits(load)]


def limits(load: Load) -> list[str]:
    """Those that the plan is for."""
    values = {"--batch": load.batch, "--capacity": load.capacity, "--source-len": load.source_len}
    return [f"{option} {value}" for option, value in values.items() if value]
