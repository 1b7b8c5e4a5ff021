"""Compares the speed that `edgeformer plan --device this` expects with the speed that is measured, in one run.

    python benchmarks/sizing_check.py build/g2p --shape 135m -o sizing.json

Takes bundles, and a language model of LLaMA's shape with random weights; for each artifact of ort-cpu it decodes where
the plan does, when caches are half full. Artifacts take turns. The share is of the speed at which reading and
computing, at the peaks that the same run measured, would follow each other. Needs the extra `all`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from arguments import positive
from comparison import Spread
from random_decoder import SHAPES, write_bundle
from rich.console import Console

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.cli.requirements import installed_versions
from edgeformer.cli.sizing.asking import ask
from edgeformer.cli.sizing.devices import Device
from edgeformer.cli.sizing.planning import Question, sized
from edgeformer.cli.sizing.this_machine import this_device
from edgeformer.runtime import Model, load
from edgeformer.runtime.names import Sizes

console = Console(stderr=True, highlight=False)
WARM_UP = 4
SOURCE_LEN = 16
COLUMNS = ("model", "precision", "batch", "ms a step: median (least-most)", "tokens/s", "expected", "at most", "share")


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """An artifact with a batch.

    Attributes:
        name: of the model.
        question: what the plan was asked.
    """

    name: str
    precision: str
    batch: int
    question: Question


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        measured = list(measure(arguments, list(bundles(arguments, Path(scratch)))))
    results = [summary(cell, found) for cell, found in measured]
    report = {
        "threads": arguments.threads,
        "load_average": os.getloadavg()[0],
        "machine": dataclasses.asdict(this_machine()),
        "versions": installed_versions(),
        "ceilings": describe_ceilings(measured[-1][0].question),
        "results": results,
    }
    if arguments.output is not None:
        write_json(arguments.output, report)
    print_report(report)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*", type=Path, metavar="BUNDLE", help="with artifacts of ort-cpu")
    parser.add_argument("--shape", choices=SHAPES, help="measure a language model with random weights as well")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "int8", "int4"], help="of that model")
    parser.add_argument("--batches", nargs="+", type=positive, default=[1, 8])
    parser.add_argument("--capacity", type=positive, default=64, help="tokens of a row; half of them are there")
    parser.add_argument("--steps", type=positive, default=16, help="decode steps of a round")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--threads", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("-o", "--output", type=Path, help="JSON to write")
    arguments = parser.parse_args()
    if not arguments.bundles and arguments.shape is None:
        parser.error("nothing to measure: name bundles, or a --shape")
    return arguments


def bundles(arguments: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, Path]]:
    for bundle in arguments.bundles:
        yield bundle.name, bundle
    if arguments.shape is not None:
        write_bundle(scratch / arguments.shape, arguments.shape, arguments.precisions, console.print)
        yield f"random {arguments.shape}", scratch / arguments.shape


def measure(arguments: argparse.Namespace, models: list[tuple[str, Path]]) -> Iterator[tuple[Cell, list[float]]]:
    """Seconds of each step of each cell."""
    for name, bundle in models:
        question = ask(bundle, "raspberry-pi-5-8g", capacity=arguments.capacity)  # for the shape: no figure is used
        device = best([this_device(question.shape, arguments.threads) for _ in range(arguments.rounds)])
        names = [one for one, _ in question.built.values()]
        loaded = {precision: load(bundle, one, threads=arguments.threads)
                  for precision, (one, _) in question.built.items()}  # fmt: skip
        found: dict[tuple[str, int], list[float]] = {}
        for batch in arguments.batches:
            for number in range(arguments.rounds):
                console.print(f"{name}, batch {batch}, round {number + 1}: {', '.join(names)}")
                for precision, model in loaded.items():
                    seconds = decode(model, batch, arguments.capacity, arguments.steps)
                    found.setdefault((precision, batch), []).extend(seconds)
        for (precision, batch), seconds in found.items():
            asked = dataclasses.replace(question.load, batch=batch, source_len=source_len(loaded[precision].sizes))
            yield Cell(name, precision, batch, dataclasses.replace(question, device=device, load=asked)), seconds


def best(measured: list[Device]) -> Device:
    """What a machine can do is the best that was seen: other work takes the cores now and then."""
    rates = {size: max(device.rates[size] for device in measured) for size in measured[0].rates}
    arithmetic = {kind: max(device.arithmetic[kind] for device in measured) for kind in measured[0].arithmetic}
    return dataclasses.replace(measured[0], rates=rates, bandwidth=rates[max(rates)], arithmetic=arithmetic)


def source_len(sizes: Sizes) -> int:
    return min(SOURCE_LEN, sizes.max_source_positions)


def decode(model: Model, batch: int, capacity: int, steps: int) -> list[float]:
    """Seconds of steps around the one that finds caches half full."""
    rng, sizes = np.random.default_rng(0), model.sizes
    if sizes.has_source:
        ids = rng.integers(0, sizes.source_vocab_size, (batch, source_len(sizes)))
        rows = model.executor.start([list(map(int, row)) for row in ids], capacity)
    else:
        rows = model.executor.start_empty(batch, capacity)
    before = max(capacity // 2 - WARM_UP - steps // 2, 1)
    rows.step(rng.integers(0, sizes.vocab_size, (batch, before)))
    found = []
    for _ in range(WARM_UP + steps):
        ids = rng.integers(0, sizes.vocab_size, (batch, 1))
        begin = time.perf_counter()
        rows.step(ids)
        found.append(time.perf_counter() - begin)
    rows.close()
    return found[WARM_UP:]


def summary(cell: Cell, seconds: list[float]) -> dict[str, Any]:
    """A cell's figures: tokens a second of all rows together, as measured and as planned."""
    plan = next(plan for plan in sized(cell.question) if plan.precision == cell.precision)
    spread, step = Spread.of(seconds), plan.speed.step
    low, high, most = plan.speed.tokens_per_second(cell.batch)
    assert step is not None
    assert step.one_after_the_other is not None
    return {
        "model": cell.name,
        "precision": cell.precision,
        "batch": cell.batch,
        "seconds": dataclasses.asdict(spread),
        "tokens_per_second": cell.batch / spread.median,
        "expected": [low, high],
        "at_most": most,
        "bound": dataclasses.asdict(step),
        "share": step.one_after_the_other / spread.median,
        "share_of_the_fastest": step.one_after_the_other / spread.least,
    }


def describe_ceilings(question: Question) -> dict[str, Any]:
    return {"read_bytes_per_second": dict(question.device.rates), "arithmetic": dict(question.device.arithmetic)}


def print_report(report: dict[str, Any]) -> None:
    print_line(f"{report['machine']['cpu']}, {report['threads']} threads, load average {report['load_average']:.2f}")
    for size, rate in report["ceilings"]["read_bytes_per_second"].items():
        print_line(f"{int(size) / 1e6:.1f} MB are read at {rate / 1e9:.1f} GB/s")
    print_line(f"{report['ceilings']['arithmetic']['fp32'] / 1e9:.0f} GFLOP/s of float32 products")
    print_table(COLUMNS, [cells(result) for result in report["results"]], numbers=COLUMNS[2:])


def cells(result: dict[str, Any]) -> tuple[str, ...]:
    milliseconds = Spread(*(1000 * value for value in result["seconds"].values()))
    low, high = result["expected"]
    return (
        result["model"],
        result["precision"],
        str(result["batch"]),
        milliseconds.text(2),
        f"{result['tokens_per_second']:.0f}",
        f"{low:.0f}-{high:.0f}",
        f"{result['at_most']:.0f}",
        f"{result['share']:.0%}",
    )


if __name__ == "__main__":
    main()
