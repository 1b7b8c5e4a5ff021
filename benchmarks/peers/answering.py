"""The side of benchmarks/peer_speed.py that runs in a peer's environment: converts a checkpoint, and works on demand.

    PYTHON PEER.py convert decoder CHECKPOINT MODEL --format fp32
    PYTHON PEER.py work decoder MODEL --format fp32 --threads 2 --work FILE

Needs the standard library alone. `work` answers each line of JSON on standard input with one on standard output, the
first of them unasked, when the model has answered once:

    < {"load_seconds": 0.6, "peak_rss_mib": 812.1, "versions": {...}}
    > {"work": "decode, batch 8", "outputs": true}
    < {"first_seconds": 0.09, "seconds": 1.8, "cpu_seconds": 3.5, "peak_rss_mib": 840.2, "outputs": [[71, 902], ...]}
    > {"work": "decode, batch 32", "outputs": true}
    < {"cannot": "no batches of unequal lengths"}

FILE has the work by its name: {"inputs": [[ids]], "batch": 8, "new_tokens": 32, "beams": 1}. `first_seconds` is the
time of the same inputs with one new token, so that the difference is that of the others. A work is done once, untimed,
before it is timed. End of input ends the program.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

MIB = 2**20
SHOWN = 300  # characters of what a library says of its failure
FIRST_TOKENS = 16  # of the input that is answered before anything is timed


class CannotError(Exception):
    """The peer has no way to do this; the message says what is missing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """What is asked of a model.

    Attributes:
        inputs: rows of ids: prompts, sources or sentences.
        batch: rows of a call.
        new_tokens: how many each row gets, whatever they are; 0 of an encoder.
        beams: of the search; 1 is greedy.
    """

    inputs: list[list[int]]
    batch: int
    new_tokens: int = 0
    beams: int = 1

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.inputs]

    def one_token(self) -> Work:
        return dataclasses.replace(self, new_tokens=1)

    def small(self) -> Work:
        """The beginning of the first row, and one token."""
        return Work([self.inputs[0][:FIRST_TOKENS]], 1, min(self.new_tokens, 1), 1)

    def calls(self) -> list[Work]:
        """One for each call. What only reads is given sentences of like lengths together, as its users do."""
        rows = sorted(self.inputs, key=len) if self.new_tokens == 0 else self.inputs
        batches = [rows[i : i + self.batch] for i in range(0, len(rows), self.batch)]
        return [dataclasses.replace(self, inputs=batch) for batch in batches]


# Gives for each row its new ids, or of an encoder a part of its vectors.
Run = Callable[[Work], list[list[Any]]]
Convert = Callable[[str, Path, Path, str], None]  # kind, checkpoint, output, format
Load = Callable[[str, Path, str, int], Run]  # kind, model, format, threads


def main(convert: Convert, load: Load, packages: Sequence[str]) -> None:
    """The program of a peer, whose parts that know its library are given."""
    options = parse()
    if options.command == "convert":
        try:
            convert(options.kind, options.checkpoint, options.model, options.format)
        except CannotError as error:
            stop(str(error))
        return
    answers = take_stdout()
    works = {name: Work(**item) for name, item in json.loads(options.work.read_text(encoding="utf-8")).items()}
    begin = time.perf_counter()
    try:
        run = load(options.kind, options.model, options.format, options.threads)
        run(next(iter(works.values())).small())
    except CannotError as error:
        print(json.dumps({"error": str(error)}), file=answers, flush=True)
        return
    described = {
        "load_seconds": time.perf_counter() - begin,
        "peak_rss_mib": peak_rss_mib(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }
    print(json.dumps(described), file=answers, flush=True)
    warm: set[str] = set()
    for line in sys.stdin:
        command = json.loads(line)
        name = command["work"]
        reply = answer(run, works[name], name not in warm)
        warm.add(name)
        if not command.get("outputs"):
            reply.pop("outputs", None)
        print(json.dumps(reply), file=answers, flush=True)


def take_stdout() -> Any:
    """A file for the answers; what libraries print goes to standard error instead, even from C."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def answer(run: Run, work: Work, new: bool) -> dict[str, Any]:
    """A timed work, or why it can't be done."""
    try:
        several = work.new_tokens > 1
        if new:
            timed(run, work)
            if several:
                timed(run, work.one_token())
        first = timed(run, work.one_token())[0] if several else None
        seconds, cpu_seconds, outputs = timed(run, work)
    except CannotError as error:
        return {"cannot": str(error)}
    except Exception as error:  # whatever the peer's library raises says what it can't do
        return {"cannot": f"{type(error).__name__}: {' '.join(str(error).split())[:SHOWN]}"}
    if wrong := [len(row) for row in outputs if work.new_tokens and len(row) != work.new_tokens]:
        return {"cannot": f"gave {wrong[0]} new tokens in place of {work.new_tokens}"}
    return {
        "first_seconds": first,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_rss_mib": peak_rss_mib(),
        "outputs": outputs,
    }


def timed(run: Run, work: Work) -> tuple[float, float, list[list[Any]]]:
    """Seconds, processor seconds of all threads, and outputs."""
    outputs: list[list[Any]] = []
    begin, cpu_begin = time.perf_counter(), time.process_time()
    for call in work.calls():
        outputs += run(call)
    return time.perf_counter() - begin, time.process_time() - cpu_begin, outputs


def peak_rss_mib() -> float:
    """The most memory this process has held.

    Linux's `ru_maxrss` begins with what the parent held when it started this process, so VmHWM is read where it exists.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / MIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MIB if sys.platform == "darwin" else peak * 1024 / MIB


def stop(reason: str) -> NoReturn:
    sys.exit(f"error: {reason}")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    for name, text in (("convert", "write the peer's model of a checkpoint"), ("work", "work on demand")):
        command = commands.add_parser(name, help=text)
        command.add_argument("kind", choices=("decoder", "encoder", "paper"))
        if name == "convert":
            command.add_argument("checkpoint", type=Path)
        command.add_argument("model", type=Path, help="a folder")
        command.add_argument("--format", required=True, help="how weights are stored, by the peer's own name")
        if name == "work":
            command.add_argument("--threads", type=int, required=True)
            command.add_argument("--work", type=Path, required=True, help="JSON")
    return parser.parse_args(arguments)
