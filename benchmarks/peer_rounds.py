"""Rounds of many engines in turn. One that cannot do something is recorded as such, and the others go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from taking_turns import Engine, Worker, WorkerError, cpu_seconds


@dataclasses.dataclass(slots=True)
class Record:
    """What an engine did of one work.

    Attributes:
        cannot: why it did nothing, None where it did.
        rounds: its replies without their outputs, which are those of the last.
    """

    rounds: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    outputs: list[list[Any]] = dataclasses.field(default_factory=list)
    cannot: str | None = None


@dataclasses.dataclass(slots=True)
class Ran:
    """An engine's share of a run.

    Attributes:
        start_seconds: from starting the process, imports included, until it had answered once.
        description: what it said of itself.
        records: of each work.
    """

    start_seconds: float
    description: dict[str, Any]
    records: dict[str, Record]


def run_rounds(
    engines: Sequence[Engine],
    works: Sequence[str],
    file: Path,
    threads: int,
    rounds: int,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[dict[str, Ran], dict[str, str]]:
    """Let engines work in turn, and in the opposite order every other round; all are loaded the whole time.

    Args:
        engines: workers that speak the protocol of peers/answering.py.
        works: names in `file`, in the order in which they are done.
        file: JSON that every worker reads.
        threads: of each.
        rounds: timed, of each work.
        say: told how far it is.

    Returns:
        what each engine did by its name; and of those that did not start, why.
    """
    with ExitStack() as running:
        workers, missing = dict[str, Worker](), dict[str, str]()
        for engine in engines:
            say(f"loading {engine.name}")
            try:
                workers[engine.name] = running.enter_context(Worker(engine, threads, ("--work", str(file))))
            except WorkerError as error:
                missing[engine.name] = str(error).removeprefix(f"{engine.name}: ")
        ran = {name: Ran(w.start_seconds, w.description, {}) for name, w in workers.items()}
        ended: dict[str, str] = {}
        for work in works:
            records = {name: Record(cannot=ended.get(name)) for name in workers}
            for number in range(rounds):
                say(f"{work}, round {number + 1}")
                for name in list(workers) if number % 2 == 0 else list(workers)[::-1]:
                    if records[name].cannot is None:
                        take_turn(workers, name, work, records[name], ended)
            for name, record in records.items():
                ran[name].records[work] = record
    return ran, missing


def take_turn(workers: Mapping[str, Worker], name: str, work: str, record: Record, ended: dict[str, str]) -> None:
    """One round of one engine, put into its record."""
    others = [worker.process.pid for other, worker in workers.items() if other != name]
    before = sum(map(cpu_seconds, others))
    try:
        reply = workers[name].ask({"work": work, "outputs": True})
    except WorkerError as error:
        record.cannot = ended[name] = str(error)
        return
    if "cannot" in reply:
        record.cannot = reply["cannot"]
        return
    reply["others_cpu_seconds"] = sum(map(cpu_seconds, others)) - before
    record.outputs = reply.pop("outputs")
    record.rounds.append(reply)
