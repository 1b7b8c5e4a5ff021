"""Engines that take turns on one machine: each a worker process, asked for a round at a time.

Engines are compared by what they do in the same minutes, not by what each did in its own. All are loaded; one works
while the others wait for a line on their standard input. How much processor time those took meanwhile is recorded,
since a thread pool that spins while it waits would be another engine's loss.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from edgeformer.runtime.errors import EdgeformerError


class WorkerError(EdgeformerError):
    """A worker ended or refused; its own message is on standard error, or in this one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """A worker's command line, without --threads and what all workers of a run are given."""

    name: str
    command: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What all engines do alike: words, one a line in `words_file`, `batch` of them per call."""

    threads: int
    batch: int
    beams: int
    words_file: Path


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What a worker said of itself, and the replies of its rounds without their outputs, which are those of the last.

    Attributes:
        start_seconds: from starting the process, imports included, until it was ready.
        rounds: with `others_cpu_seconds`, the processor time that waiting workers took meanwhile.
    """

    engine: str
    start_seconds: float
    description: dict[str, Any]
    rounds: list[dict[str, Any]]
    outputs: list[str]

    @property
    def seconds(self) -> list[float]:
        return [reply["seconds"] for reply in self.rounds]

    @property
    def cpu_seconds(self) -> list[float]:
        return [reply["cpu_seconds"] for reply in self.rounds]


class Worker:
    """A running worker. A context manager; at its end, the worker's input ends, and so does the worker.

    Raises:
        WorkerError: it ended before it was ready.
    """

    def __init__(self, engine: Engine, threads: int, arguments: Sequence[str]) -> None:
        self.engine = engine
        command = [*engine.command, "--threads", str(threads), *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        begin = time.perf_counter()
        # In a session of its own, it does not take part in a Ctrl-C, but ends with its input.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
        )
        self.description = self.read()
        self.start_seconds = time.perf_counter() - begin

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.process.kill()
        self.process.communicate()

    def read(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            self.process.communicate()
            raise WorkerError(f"{self.engine.name} ended with exit code {self.process.returncode}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise WorkerError(f"{self.engine.name}: {reply['error']}")
        return reply

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """One round.

        Raises:
            WorkerError: it refused, or ended.
        """
        if self.process.stdin is None:
            raise WorkerError(f"{self.engine.name} takes no commands")
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(f"{self.engine.name} ended before it was asked") from None
        return self.read()


def take_turns(
    engines: Sequence[Engine], setting: Setting, rounds: int, on_done: Callable[[int], None] = lambda done: None
) -> list[Record]:
    """Rounds of every engine in turn, and in the opposite order every other time.

    Args:
        engines: neighbours are what is compared most closely, since they work right after one another.
        setting: what they all do.
        rounds: of each engine, after its warm-up.
        on_done: called with 1 after each engine's round.

    Raises:
        WorkerError: a worker ended or refused.
    """
    with ExitStack() as running:
        given = ("--words", str(setting.words_file))
        workers = [running.enter_context(Worker(engine, setting.threads, given)) for engine in engines]
        replies: dict[str, list[dict[str, Any]]] = {engine.name: [] for engine in engines}
        outputs: dict[str, list[str]] = {}
        for number in range(rounds):
            for worker in workers if number % 2 == 0 else workers[::-1]:
                command = {"batch": setting.batch, "beams": setting.beams, "round": number}
                others = [other.process.pid for other in workers if other is not worker]
                before = sum(map(cpu_seconds, others))
                reply = worker.ask({**command, "outputs": number == rounds - 1})
                reply["others_cpu_seconds"] = sum(map(cpu_seconds, others)) - before
                outputs[worker.engine.name] = reply.pop("outputs", [])
                replies[worker.engine.name].append(reply)
                on_done(1)
        return [
            Record(w.engine.name, w.start_seconds, w.description, replies[w.engine.name], outputs[w.engine.name])
            for w in workers
        ]


def cpu_seconds(process: int) -> float:
    """Processor time that a process has taken, in hundredths of a second; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    user, system = fields[11:13]  # fields 14 and 15, counted from 1 with the two that are cut off
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
