"""An artifact of the letters-to-phonemes bundle on the words of benchmarks/g2p_speed.py, round by round on demand.

    python benchmarks/g2p_worker.py build/g2p --artifact ort-cpu-fp32 --words FILE --threads 1

The protocol is that of `worker` in peers/ctranslate2_g2p.py, so that two engines can take turns on one machine: each
line of JSON on standard input is answered by one on standard output, the first of them unasked.

    < {"words": 2000, "load_seconds": 0.1, "artifact": "ort-cpu-fp32", "versions": {...}, ...}
    > {"batch": 64, "beams": 4, "round": 0, "outputs": true}
    < {"batch": 64, "beams": 4, "round": 0, "seconds": 1.9, "peak_rss_mib": 98.5, ..., "outputs": ["AH B EY T", ...]}

A setting is warmed up, untimed, the first time it is asked for. A line that can't be answered gets {"error": "..."};
end of input ends the program.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import onnxruntime  # noqa: F401  # here, as the peer imports its library, and not while loading is timed
from pronunciations import read_words

from edgeformer.cli.machine import status_bytes
from edgeformer.cli.requirements import installed_versions
from edgeformer.runtime import GenerationConfig, load
from edgeformer.runtime.errors import EdgeformerError, InputError

MIB = 2**20
EARLY_STOPPING = {"true": True, "false": False, "never": "never"}


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """One pass over all words.

    Attributes:
        seconds: from words to phoneme strings, what a caller waits for.
        engine_seconds: the part of it inside encoder and search; the rest is the tokenizer.
        cpu_seconds: processor time of all threads, which a busy machine disturbs less.
        call_ms_p50, call_ms_p90: of single calls, in milliseconds, the tokenizer included.
        outputs: phonemes in the order of the words.
    """

    seconds: float
    engine_seconds: float
    cpu_seconds: float
    call_ms_p50: float
    call_ms_p90: float
    outputs: list[str]

    def report(self) -> dict[str, Any]:
        """Everything but the outputs, with rates and the process's peak memory so far."""
        words = len(self.outputs)
        times = {name: value for name, value in dataclasses.asdict(self).items() if name != "outputs"}
        rates = {"words_per_second": words / self.seconds, "ms_per_word": 1000 * self.seconds / words}
        return {**times, **rates, "peak_rss_mib": peak_rss_mib()}


class Worker:
    """A loaded artifact and the words to say.

    Raises:
        EdgeformerError: the artifact cannot be loaded, or a word cannot be spelled.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.words = read_words(options.words)
        if not self.words:
            raise InputError("there are no words to say")
        self.search = {
            "max_new_tokens": options.max_new_tokens,
            "length_penalty": options.length_penalty,
            "early_stopping": EARLY_STOPPING[options.early_stopping],
        }
        self.warm: set[tuple[int, int]] = set()
        begin = time.perf_counter()
        self.model = load(options.bundle, options.artifact, threads=options.threads)
        self.load_seconds = time.perf_counter() - begin
        self.model.text.encode_sources(self.words)  # which refuses what no round could answer

    def describe(self) -> dict[str, Any]:
        return {
            "words": len(self.words),
            "load_seconds": self.load_seconds,
            "peak_rss_mib": peak_rss_mib(),
            "artifact": self.model.artifact.name,
            "search": self.search,
            "versions": installed_versions(),
            "python": platform.python_version(),
            "machine": platform.platform(),
        }

    def round(self, batch: int, beams: int) -> Round:
        """Say every word, `batch` of them per call in the order given. Warmed up first where this setting is new."""
        if (batch, beams) not in self.warm:
            self.run(self.words[: max(2 * batch, 50)], batch, beams)
            self.warm.add((batch, beams))
        return self.run(self.words, batch, beams)

    def run(self, words: list[str], batch: int, beams: int) -> Round:
        config = GenerationConfig(num_beams=beams, **self.search)
        outputs: list[str] = []
        calls: list[float] = []
        engine_seconds = 0.0
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for start in range(0, len(words), batch):
            before = time.perf_counter()
            found = self.model.generate(words[start : start + batch], config, batch_size=batch)
            outputs += [generation.text for generation in found]
            calls.append(time.perf_counter() - before)
            engine_seconds += found[0].timings.total
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
        tenths = statistics.quantiles(calls, n=10, method="inclusive") if len(calls) > 1 else calls * 9
        p50, p90 = (1000 * value for value in (statistics.median(calls), tenths[-1]))
        return Round(seconds, engine_seconds, cpu_seconds, p50, p90, outputs)


def peak_rss_mib() -> float | None:
    """The most memory this process has held, None where the system does not tell."""
    held = status_bytes("VmHWM")
    return None if held is None else held / MIB


def answer(worker: Worker, line: str) -> dict[str, Any]:
    """The reply to one command."""
    try:
        command = json.loads(line)
    except json.JSONDecodeError as error:
        return {"error": f"not JSON: {error}"}
    batch, beams = (command.get(key) if isinstance(command, dict) else None for key in ("batch", "beams"))
    if not isinstance(batch, int) or not isinstance(beams, int) or min(batch, beams) < 1:
        return {"error": f"expected an object with batch and beams of at least 1, not {line.strip()}"}
    try:
        done = worker.round(batch, beams)
    except EdgeformerError as error:  # an option that the model cannot meet
        return {"error": str(error)}
    reply = {"batch": batch, "beams": beams, "round": command.get("round"), **done.report()}
    return {**reply, "outputs": done.outputs} if command.get("outputs") else reply


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--artifact", required=True, help="one of the bundle's")
    parser.add_argument("--words", type=Path, required=True, help="one word a line; what follows a tab is ignored")
    parser.add_argument("--threads", type=int, default=1, help="cores to use")
    parser.add_argument("--max-new-tokens", type=int, default=64, help="at most the model's positions")
    parser.add_argument("--length-penalty", type=float, default=1.0, help="beams only")
    parser.add_argument("--early-stopping", choices=EARLY_STOPPING, default="true", help="beams only")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    try:
        worker = Worker(options)
    except (EdgeformerError, OSError) as error:
        sys.exit(f"error: {error}")
    print(json.dumps(worker.describe()), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(worker, line)), flush=True)


if __name__ == "__main__":
    main()
