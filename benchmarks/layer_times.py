"""How long each layer of an artifact's engines takes, as TensorRT's profiler tells it: needs a GPU.

    python benchmarks/layer_times.py BUNDLE ARTIFACT -o layers.html

Prints the layers that take most, and writes the artifact's build report with their times. Steps run without CUDA
graphs here, and one after another, so that the sum is more than a step takes when it is not looked at. From the
vendor's documentation: not run yet, for want of a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arguments import positive

from edgeformer.cli.printing import print_line, print_table
from edgeformer.exporter.tensorrt.report import ArtifactReport, read_report
from edgeformer.exporter.tensorrt.report_html import to_html
from edgeformer.runtime import GenerationConfig, load
from edgeformer.runtime.errors import BackendUnavailableError, EdgeformerError, WriteError

TEXTS = ("a", "attention", "antidisestablishmentarianism", "rhythm", "colonel", "queue", "phonetic", "transformer")
SHOWN = 20

Times = dict[str, list[float]]  # milliseconds of every call of a layer, by its name


def make_profiler(trt: Any, times: Times) -> Any:
    """An `IProfiler` that keeps what it is told."""

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times[layer_name].append(ms)

    return Profiler()


def attach(executor: Any) -> dict[str, Times]:
    """Time every layer from now on, by role, and capture no CUDA graphs.

    Raises:
        BackendUnavailableError: the artifact holds no engines.
    """
    if not hasattr(executor, "stepper"):
        raise BackendUnavailableError("layers are timed of engines alone: name a TensorRT artifact")
    times: dict[str, Times] = {role: defaultdict(list) for role in ("encoder", "decoder")}
    encoder, decoder = (make_profiler(executor.module, times[role]) for role in times)
    stepper, make = executor.stepper, executor.stepper.make_context

    def make_context(profile: int) -> Any:
        context = make(profile)
        context.profiler = decoder
        return context

    executor.encoder.profiler, stepper.prefill.profiler = encoder, decoder
    stepper.make_context, stepper.capturing = make_context, False
    return times


def with_times(report: ArtifactReport, times: Mapping[str, Times]) -> ArtifactReport:
    """The report with the median time of each layer."""
    medians = {role: {name: statistics.median(of) for name, of in each.items()} for role, each in times.items()}
    builds = {role: build.with_times(medians.get(role, {})) for role, build in report.builds.items()}
    return dataclasses.replace(report, builds=builds)


def slowest(times: Mapping[str, Times]) -> list[tuple[str, str, str, str, str]]:
    """Role, layer, calls, median milliseconds and share of all the time, of the layers that take most together."""
    total = sum(sum(of) for each in times.values() for of in each.values())
    rows = [(role, name, of) for role, each in times.items() for name, of in each.items()]
    rows.sort(key=lambda row: -sum(row[2]))
    return [
        (role, name, str(len(of)), f"{statistics.median(of):.4f}", f"{sum(of) / total:.1%}") for role, name, of in rows
    ]


def run(options: argparse.Namespace) -> None:
    report = read_report(options.bundle / options.artifact)
    model = load(options.bundle, options.artifact)
    times = attach(model.executor)
    config = GenerationConfig()
    model.generate(TEXTS, config)  # what is slow at first alone is not counted
    for each in times.values():
        each.clear()
    for _ in range(options.rounds):
        model.generate(TEXTS, config)
    rows = slowest(times)
    columns = ["role", "layer", "calls", "median ms", "share"]
    print_table(columns, rows[:SHOWN], numbers=columns[2:])
    if len(rows) > SHOWN:
        print_line(f"and {len(rows) - SHOWN} more, in {options.output}")
    try:
        options.output.write_text(to_html(with_times(report, times)), encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{options.output} cannot be written: {error.strerror or error}") from error


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundle", type=Path, help="a bundle with engines")
    parser.add_argument("artifact", help="the artifact, such as tensorrt-rtx-fp16")
    parser.add_argument("--rounds", type=positive, default=20, help="how often the texts are decoded")
    parser.add_argument("-o", "--output", type=Path, default=Path("layers.html"), help="where the page goes")
    return parser.parse_args(arguments)


def main() -> None:
    try:
        run(parse(sys.argv[1:]))
    except EdgeformerError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
