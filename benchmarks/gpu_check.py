"""Builds and runs all that this machine's GPU can run, and compares it with the CPU token for token.

    make gpu-check
    python benchmarks/gpu_check.py --checkpoint examples/g2p/checkpoint -o gpu-check.json

Prints a table to paste into an issue: it is how this project learns what works on GPUs that it has not. Without a GPU
it says what it would do, and that nothing ran. The exit code is 1 where something that should run failed. Needs the
extra `all`, and one of tensorrt, tensorrt-rtx-cu13 and onnxruntime-gpu.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from arguments import positive
from gpu_report import Outcome, as_values, markdown
from gpu_trials import Trial, find_gpu, trials
from pronunciations import read_words

from edgeformer.cli.benching.calls import Call, timed_call
from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, write_json
from edgeformer.cli.requirements import installed_versions
from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.backends.tensorrt import fitness
from edgeformer.runtime.backends.tensorrt.driver import Device
from edgeformer.runtime.errors import EdgeformerError

CHECKPOINT = Path(__file__).parents[1] / "examples" / "g2p" / "checkpoint"
REFERENCE = "ort-cpu-fp32"
BATCHES = (1, 64)
GREEDY, BEAMS = GenerationConfig(), GenerationConfig(num_beams=4)
WORDS = (
    "a the of attention transformer unreasonable through thought rhythm queue colonel island knight psychology debris "
    "measure engine language phonetic quartz buffalo strengths onomatopoeia yacht choir lieutenant receipt subtle "
    "antidisestablishmentarianism exercise jazz wednesday february mischievous epitome hyperbole edge kernel tensor"
).split()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="what to export; the example by default")
    parser.add_argument("--words", type=Path, help="a word a line; some that are hard to say by default")
    parser.add_argument("--rounds", type=positive, default=10, help="how often all words are measured")
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu-check.json"), help="where the JSON goes")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """The exit code."""
    device, said = find_gpu()
    found = list(trials(device))
    if device is None:
        return without_gpu(found, said, options.output)
    words = read_words(options.words) if options.words else WORDS
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        bundle = Path(scratch) / "bundle"
        tell(f"exporting {options.checkpoint}")
        export_checkpoint(options.checkpoint, bundle)
        optimize_bundle(bundle, "ort-cpu", "fp32")
        reference = load(bundle, REFERENCE)
        expected = [tokens(reference, words, config) for config in (GREEDY, BEAMS)]
        outcomes = [measured(bundle, REFERENCE, words, expected, None, options.rounds)]
        outcomes += [attempt(bundle, trial, words, expected, device, options.rounds) for trial in found]
    heading = heading_of(device)
    print_line(markdown(heading, outcomes), end="")
    write_json(options.output, as_values(heading, outcomes, ran=True))
    tried = {trial.name for trial in found if trial.reason is None}
    return int(any(outcome.error for outcome in outcomes if outcome.artifact in tried))


def without_gpu(found: Sequence[Trial], why: str, output: Path) -> int:
    """Say what would be done."""
    print_line("With a GPU this would export the example, optimize it for these targets, run each, and compare it with")
    print_line(f"{REFERENCE} token for token:")
    several: dict[tuple[str, str], list[str]] = {}
    for trial in found:
        several.setdefault((trial.target, trial.reason or "would be built and run"), []).append(trial.precision)
    for (target, said), precisions in several.items():
        print_line(f"- {target} ({', '.join(precisions)}): {said}")
    print_line(f"Nothing was built, and nothing ran: {why}")
    untried = [Outcome(trial.name, trial.reason or why) for trial in found]
    write_json(output, as_values([], untried, ran=False, reason=why))
    return 0


def attempt(
    bundle: Path, trial: Trial, words: Sequence[str], expected: list[list[tuple[int, ...]]], device: Device, rounds: int
) -> Outcome:
    """Build an artifact, run it, compare it and measure it; what goes wrong is the outcome."""
    if trial.reason is not None:
        return Outcome(trial.name, f"not tried: {trial.reason}")
    try:
        tell(f"building {trial.name}")
        optimize_bundle(bundle, trial.target, trial.precision, EngineOptions(compute_capabilities=trial.gpus))
        tell(f"running {trial.name}")
        return measured(bundle, trial.name, words, expected, device, rounds)
    except EdgeformerError as error:
        return Outcome(trial.name, f"{type(error).__name__}: {error}")


def measured(
    bundle: Path,
    name: str,
    words: Sequence[str],
    expected: list[list[tuple[int, ...]]],
    device: Device | None,
    rounds: int,
) -> Outcome:
    before = device.free_memory()[0] if device is not None else 0
    begin = time.perf_counter()
    model = load(bundle, name)
    load_seconds = time.perf_counter() - begin
    same = [
        sum(one == other for one, other in zip(tokens(model, words, config), wanted, strict=True))
        for config, wanted in zip((GREEDY, BEAMS), expected, strict=True)
    ]
    taken = before - device.free_memory()[0] if device is not None else None
    notes = tuple(getattr(model.executor, "notes", ()))
    calls = {batch: timed_rounds(model, words, batch, rounds) for batch in BATCHES}
    steps = [seconds for one in calls[1] for call in one for seconds in call.steps]
    return Outcome(
        artifact=name,
        words=len(words),
        same_greedy=same[0],
        same_beam=same[1],
        words_per_second={
            batch: len(words) / statistics.median(sum(call.seconds for call in one) for one in every)
            for batch, every in calls.items()
        },
        token_ms=1e3 * statistics.median(steps) if steps else None,
        load_seconds=load_seconds,
        gpu_bytes=taken,
        notes=notes,
    )


def timed_rounds(model: Model, words: Sequence[str], batch: int, rounds: int) -> list[list[Call]]:
    """The calls of each round over all words, after one that does not count."""
    parts = [words[first : first + batch] for first in range(0, len(words), batch)]
    return [[timed_call(model, part, GREEDY) for part in parts] for _ in range(rounds + 1)][1:]


def tokens(model: Model, words: Sequence[str], config: GenerationConfig) -> list[tuple[int, ...]]:
    return [generation.token_ids for generation in model.generate(list(words), config)]


def heading_of(device: Device) -> list[tuple[str, str]]:
    """The machine and the versions, as lines."""
    machine, versions = this_machine(), installed_versions()
    modules = {module: fitness.installed_version(module) for module in fitness.DISTRIBUTIONS}
    used = {**versions, **{module: version for module, version in modules.items() if version is not None}}
    shared = ", memory shared with the CPU" if device.integrated else ""
    return [
        ("GPU", f"{device.name}, compute capability {device.compute_capability}{shared}"),
        ("driver", f"{machine.nvidia_driver or 'unknown'}, up to CUDA {device.driver_version}"),
        ("machine", f"{machine.jetson or machine.cpu}, {machine.os}, Python {machine.python}"),
        ("versions", ", ".join(f"{package} {version}" for package, version in used.items())),
    ]


def tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(run(parse(sys.argv[1:])))
    except EdgeformerError as error:
        sys.exit(f"error: {error}")
