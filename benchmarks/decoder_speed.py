"""How fast language models read prompts and write tokens on this CPU, and how near that is to what memory allows.

    python benchmarks/decoder_speed.py --precisions fp32 int8 int4 -o decoder_speed.json

The model is of LLaMA's shape with random weights, 135 million of them; how fast it is does not depend on them. Prompts
go into empty caches, their last position's logits are computed. A decode step is timed alone, without the choice of a
token. The floor of a step is the time in which this machine reads the weights and caches that it needs, measured in the
same run. Precisions take turns; with --without-own each is there twice, the second time on ONNX Runtime's operators
alone. Needs the extra `all`.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from arguments import positive
from comparison import Spread
from random_decoder import SHAPES, write_bundle
from rich.console import Console

from edgeformer.cli.benching.ceilings import Ceilings, measure_ceilings
from edgeformer.cli.benching.graph_weights import weights_of
from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.cli.requirements import installed_versions
from edgeformer.exporter.records import PORTABLE
from edgeformer.runtime import Model, load, native
from edgeformer.runtime.names import Sizes

console = Console(stderr=True, highlight=False)
DECODED_AFTER = 16  # tokens of the prompts before decoding
WARM_UP = 4
WITHOUT_OWN = ", without own"  # of a precision's name


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """What is measured of a precision: prompts of `length` tokens, or decoding where that is None."""

    precision: str
    batch: int
    length: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What figures are compared with.

    Attributes:
        ceilings: what the machine can do.
        bytes_read: of each precision's weights, in every step.
        flops_a_token: multiplications and additions of products with weights, but for the vocabulary's.
        steps: of a round of decoding.
    """

    ceilings: Ceilings
    bytes_read: dict[str, int]
    flops_a_token: int
    steps: int


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        bundle = Path(scratch, "bundle")
        write_bundle(bundle, arguments.shape, arguments.precisions, console.print)
        models = {p: load(bundle, f"ort-cpu-{p}", threads=arguments.threads) for p in arguments.precisions}
        if arguments.without_own:
            models |= without_own_operators(bundle, arguments)
        vocab_size = SHAPES[arguments.shape].vocab_size
        graphs = {p: bundle / model.artifact.graphs["decoder"] for p, model in models.items()}
        bytes_read = {p: weights_of(path, vocab_size).bytes for p, path in graphs.items()}
        portable = weights_of(bundle / PORTABLE / "decoder.onnx", vocab_size)
        console.print("measuring what the machine can read")
        ceilings = measure_ceilings(arguments.threads, list(bytes_read.values()))
        seconds = measure(models, arguments)
    known = Known(ceilings, bytes_read, 2 * (portable.count - portable.head), arguments.steps)
    results = [summary(cell, models[cell.precision].sizes, found, known) for cell, found in seconds.items()]
    report = {
        "shape": dataclasses.asdict(SHAPES[arguments.shape]),
        "threads": arguments.threads,
        "load_average": os.getloadavg()[0],
        "machine": dataclasses.asdict(this_machine()),
        "versions": installed_versions(),
        "own_operators": native.instructions(),
        "ceilings": dataclasses.asdict(ceilings),
        "results": results,
    }
    if arguments.output is not None:
        write_json(arguments.output, report)
    print_report(report)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--precisions", nargs="+", default=["fp32", "int8", "int8-rows", "int4"])
    parser.add_argument("--batches", nargs="+", type=positive, default=[1, 8, 32])
    parser.add_argument("--prompts", nargs="+", type=positive, default=[128, 512], help="tokens")
    parser.add_argument("--steps", type=positive, default=64, help="decode steps of a round")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--threads", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("--without-own", action="store_true", help="beside ONNX Runtime's operators alone")
    parser.add_argument("-o", "--output", type=Path, help="JSON to write")
    return parser.parse_args()


def without_own_operators(bundle: Path, arguments: argparse.Namespace) -> dict[str, Model]:
    """Each precision once more, on ONNX Runtime's operators alone."""
    before = os.environ.get(native.SWITCH)
    os.environ[native.SWITCH] = "0"
    try:
        found = {p: load(bundle, f"ort-cpu-{p}", threads=arguments.threads) for p in arguments.precisions}
        return {f"{p}{WITHOUT_OWN}": model for p, model in found.items()}
    finally:
        del os.environ[native.SWITCH]
        if before is not None:
            os.environ[native.SWITCH] = before


def measure(models: dict[str, Model], arguments: argparse.Namespace) -> dict[Cell, list[float]]:
    """Seconds of each run of each cell; precisions take turns, and in the opposite order every other round."""
    seconds: dict[Cell, list[float]] = {}
    for batch in arguments.batches:
        for length in (None, *arguments.prompts):
            for number in range(arguments.rounds):
                console.print(f"batch {batch}, {f'prompts of {length}' if length else 'decoding'}, round {number + 1}")
                for precision in models if number % 2 == 0 else reversed(models):
                    model = models[precision]
                    found = decode(model, batch, arguments.steps) if length is None else read(model, batch, length)
                    seconds.setdefault(Cell(precision, batch, length), []).extend(found)
    return seconds


def decode(model: Model, batch: int, steps: int) -> list[float]:
    """Seconds of each step."""
    rng, found = np.random.default_rng(0), []
    rows = model.executor.start_empty(batch, DECODED_AFTER + WARM_UP + steps)
    rows.step(rng.integers(0, model.sizes.vocab_size, (batch, DECODED_AFTER)))
    for _ in range(WARM_UP + steps):
        ids = rng.integers(0, model.sizes.vocab_size, (batch, 1))
        begin = time.perf_counter()
        rows.step(ids)
        found.append(time.perf_counter() - begin)
    rows.close()
    return found[WARM_UP:]


def read(model: Model, batch: int, length: int) -> list[float]:
    """Seconds in which prompts are read."""
    ids = np.random.default_rng(0).integers(0, model.sizes.vocab_size, (batch, length))
    rows = model.executor.start_empty(batch, length)
    begin = time.perf_counter()
    rows.step(ids)
    seconds = time.perf_counter() - begin
    rows.close()
    return [seconds]


def summary(cell: Cell, sizes: Sizes, seconds: list[float], known: Known) -> dict[str, Any]:
    """A cell's figures: tokens a second of all rows together, and the share of what the machine can do."""
    tokens = cell.batch * (cell.length or 1)
    held = DECODED_AFTER + WARM_UP + known.steps / 2 if cell.length is None else cell.length
    caches = 2 * sizes.num_layers * sizes.num_kv_heads * sizes.head_dim * 4 * cell.batch * held
    spread, size, rates = Spread.of(seconds), known.bytes_read[cell.precision], known.ceilings.read_bytes_per_second
    floor = (size + caches) / rates[min(rates, key=lambda known: abs(known - size))]
    flops = known.flops_a_token * tokens / known.ceilings.flops_per_second
    return {
        **dataclasses.asdict(cell),
        "seconds": dataclasses.asdict(spread),
        "tokens_per_second": tokens / spread.median,
        "bytes": size + caches,
        "floor_share": floor / spread.median if cell.length is None else None,
        "flops_share": flops / spread.median if cell.length else None,
    }


def print_report(report: dict[str, Any]) -> None:
    machine, rates = report["machine"], report["ceilings"]["read_bytes_per_second"]
    print_line(f"{machine['cpu']}, {report['threads']} threads, load average {report['load_average']:.2f}")
    for size, rate in rates.items():
        print_line(f"{int(size) / 1e6:.0f} MB are read at {rate / 1e9:.1f} GB/s")
    columns = ["precision", "batch", "what", "ms: median (least-most)", "tokens/s", "share of the floor", "of FLOPs"]
    print_table(columns, [cells(result) for result in report["results"]], numbers=columns[3:])


def cells(result: dict[str, Any]) -> Sequence[str]:
    milliseconds = Spread(*(1000 * value for value in result["seconds"].values()))
    shares = [f"{share:.0%}" if share is not None else "-" for share in (result["floor_share"], result["flops_share"])]
    what = "decode" if result["length"] is None else f"prompt {result['length']}"
    rate = f"{result['tokens_per_second']:.0f}"
    return (result["precision"], str(result["batch"]), what, milliseconds.text(2), rate, *shares)


if __name__ == "__main__":
    main()
