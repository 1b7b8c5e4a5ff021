"""What a step of decoding costs outside ONNX Runtime: searches, bindings and all that is set up for a text.

    python benchmarks/loop_cost.py build/g2p --artifact ort-cpu-int8 --words FILE -o loop_cost.json

One text at a time. Of each, the time outside the sessions' runs is divided by its steps, with the tokenizer, the
encoder's bindings and the caches of the text included; the part of it that lies between two steps is reported as well,
since it is what a long text pays. Searches take turns. Without --words the inputs are those of the bundle's golden
samples. What is reported are medians over texts, and their least and most over the rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from arguments import positive
from comparison import Spread
from pronunciations import read_words, spread

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.cli.requirements import installed_versions
from edgeformer.runtime import GenerationConfig, Model, load

SEARCHES = {
    "greedy": GenerationConfig(),
    "sampling": GenerationConfig(do_sample=True, seed=0),
    "sampling, top_p 0.9": GenerationConfig(do_sample=True, top_k=0, top_p=0.9, seed=0),
    "beam 4": GenerationConfig(num_beams=4),
}
MICRO = 1e6


class Runs:
    """When sessions ran, in seconds of the calling thread."""

    def __init__(self) -> None:
        self.begins: list[float] = []
        self.ends: list[float] = []

    def watch(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same method of a session, whose runs are noted."""

        def watched(*args: Any, **options: Any) -> Any:
            self.begins.append(time.thread_time())
            result = run(*args, **options)
            self.ends.append(time.thread_time())
            return result

        return watched

    def forget(self) -> None:
        self.begins.clear()
        self.ends.clear()


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Microseconds of one text.

    Attributes:
        outside: outside the sessions' runs, a step.
        between: of a median step, from the end of a run to the beginning of the next.
        setup: outside the sessions' runs, before the first step and after the last.
        inside: in the sessions' runs, a step.
    """

    steps: int
    outside: float
    between: float
    setup: float
    inside: float


def main() -> None:
    arguments = parse_arguments()
    runs = Runs()
    for name in ("run", "run_with_iobinding"):
        setattr(onnxruntime.InferenceSession, name, runs.watch(getattr(onnxruntime.InferenceSession, name)))
    model = load(arguments.bundle, arguments.artifact, threads=arguments.threads)
    inputs = inputs_of(model, arguments.words, arguments.count)
    rounds: dict[str, list[list[Text]]] = {name: [] for name in SEARCHES}
    for number in range(-1, arguments.rounds):  # the first of them warms up
        for name in SEARCHES if number % 2 == 0 else reversed(SEARCHES):
            options = SEARCHES[name].changed(max_new_tokens=arguments.max_new_tokens)
            texts = [measure(model, one, options, runs) for one in inputs]
            if number >= 0:
                rounds[name].append(texts)
    report = {
        "artifact": model.artifact.name,
        "threads": arguments.threads,
        "inputs": len(inputs),
        "load_average": os.getloadavg()[0],
        "machine": dataclasses.asdict(this_machine()),
        "versions": installed_versions(),
        "searches": {name: summary(found) for name, found in rounds.items()},
    }
    if arguments.output is not None:
        write_json(arguments.output, report)
    print_report(report)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--artifact", default="ort-cpu-fp32")
    parser.add_argument("--words", type=Path, help="inputs, one a line; what follows a tab is left out")
    parser.add_argument("--count", type=positive, default=200, help="most inputs, evenly spaced over the file")
    parser.add_argument("--max-new-tokens", type=positive, default=32)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument("-o", "--output", type=Path, help="JSON to write")
    return parser.parse_args()


def inputs_of(model: Model, words: Path | None, count: int) -> Sequence[Any]:
    if words is not None:
        return spread(read_words(words), count)
    return [list(sample.source_ids) for sample in model.bundle.manifest.golden][:count]


def measure(model: Model, source: Any, options: GenerationConfig, runs: Runs) -> Text:
    runs.forget()
    begin = time.thread_time()
    (found,) = model.generate([source], options)
    total = time.thread_time() - begin
    steps, inside = found.timings.steps, sum(runs.ends) - sum(runs.begins)
    first = len(runs.begins) - steps  # what ran before is the encoder
    gaps = [start - end for start, end in zip(runs.begins[first + 1 :], runs.ends[first:-1], strict=True)]
    outside = total - inside
    return Text(
        steps,
        outside=MICRO * outside / steps,
        between=MICRO * statistics.median(gaps) if gaps else 0.0,
        setup=MICRO * (outside - sum(gaps)),
        inside=MICRO * inside / steps,
    )


def summary(rounds: Sequence[Sequence[Text]]) -> dict[str, Any]:
    """Medians over the texts of each round: their median, least and most."""
    names = [field.name for field in dataclasses.fields(Text)]
    return {
        name: dataclasses.asdict(
            Spread.of([statistics.median(getattr(text, name) for text in texts) for texts in rounds])
        )
        for name in names
    }


def print_report(report: dict[str, Any]) -> None:
    print_line(
        f"{report['machine']['cpu']}, {report['threads']} threads, load average {report['load_average']:.2f}; "
        f"{report['artifact']}, {report['inputs']} texts"
    )
    columns = ["search", "steps", "outside, us a step", "between steps, us", "set up, us a text", "inside, us a step"]
    rows = [
        [name, *(Spread(**found[key]).text(0) for key in ("steps", "outside", "between", "setup", "inside"))]
        for name, found in report["searches"].items()
    ]
    print_table(columns, rows, numbers=columns[1:])


if __name__ == "__main__":
    main()
