"""Prompts that arrive at their own times, served one batch after another: what waiting adds to a latency."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgeformer.cli.benching.calls import Call, Clock, Generating, steps_of
from edgeformer.cli.benching.grid import Cell
from edgeformer.cli.benching.intervals import far_out
from edgeformer.cli.benching.summaries import latency
from edgeformer.runtime.errors import InputError


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A text, and when it arrives, in seconds since the beginning."""

    at: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """A request's call, whose times count from its arrival, and how long it had waited when its batch began."""

    call: Call
    waited: float


def read_requests(path: Path) -> list[Request]:
    """The lines of a file, such as {"at": 0.25, "text": "hello"}, by their times.

    Raises:
        InputError: the file cannot be read or is empty; or lines are of another form, all of which are named.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    requests, problems = list[Request](), list[str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        found = parse_request(line)
        if isinstance(found, str):
            problems.append(f"{path}, line {number}: {found}")
        else:
            requests.append(found)
    if problems:
        raise InputError("\n".join(problems[:20]))
    if not requests:
        raise InputError(f"{path} is empty: give at least one line")
    return sorted(requests, key=lambda request: request.at)


def parse_request(line: str) -> Request | str:
    """A request, or what is wrong with its line."""
    try:
        values = json.loads(line)
    except ValueError as error:
        return f"it is not JSON: {error}"
    if not isinstance(values, dict) or set(values) != {"at", "text"}:
        return f'expected an object such as {{"at": 0.25, "text": "hello"}}, got {line[:60]}'
    at, text = values["at"], values["text"]
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at < float("inf"):
        return f"at is {at!r}, expected seconds from 0 on"
    if not isinstance(text, str) or not text.strip():
        return f"text is {text!r}, expected at least one character"
    return Request(float(at), text)


def serve(
    model: Generating,
    requests: Sequence[Request],
    cell: Cell,
    on_done: Callable[[int], None] = lambda done: None,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Served]:
    """Serve requests in their order; whenever the model is free it takes those that wait, as many as the cell's batch.

    Args:
        model: what serves.
        requests: by their times, at least one.
        cell: how many to take together, and the search.
        on_done: called with how many more are served.
        clock, sleep: in seconds.
    """
    begin, served = clock(), list[Served]()
    while len(served) < len(requests):
        now = clock() - begin
        first = requests[len(served)]
        if first.at > now:
            sleep(first.at - now)
            continue
        together = list(waiting(requests[len(served) :], now, cell.batch))
        generations = model.generate([one.text for one in together], cell.config, batch_size=len(together))
        seconds = clock() - begin - now
        for request, generation in zip(together, generations, strict=True):
            waited, timings = now - request.at, generation.timings
            tokens = len(generation.token_ids) + (generation.finish_reason == "stop")
            steps = steps_of(timings)[: max(0, tokens - 1)]  # the batch goes on after a row that ended
            call = Call(begin + request.at, waited + seconds, waited + timings.first_token, steps, tokens)
            served.append(Served(call, waited))
        on_done(len(together))
    return served


def waiting(requests: Sequence[Request], now: float, most: int) -> Iterator[Request]:
    for request in requests[:most]:
        if request.at > now:
            return
        yield request


def summarize_replay(cell: Cell, served: Sequence[Served], began: float) -> dict[str, Any]:
    """A cell of a record: latencies count from arrival, throughput from the first arrival to the last answer."""
    calls = [one.call for one in served]
    seconds = [call.seconds for call in calls]
    span = max(call.began + call.seconds for call in calls) - calls[0].began
    tokens = [call.tokens for call in calls]
    users = sum(tokens) / sum(seconds)

    def plain(value: float) -> dict[str, float | None]:
        return {"value": value, "low": None, "high": None}

    return {
        **cell.key,
        "replay": True,
        "max_new_tokens": cell.config.max_new_tokens,
        "calls": len(calls),
        "ttft_ms": latency([[call.first] for call in calls]),
        "itl_ms": latency([call.steps for call in calls]),
        "e2e_ms": latency([[value] for value in seconds]),
        "waiting_ms": latency([[one.waited] for one in served]),
        "inputs_per_second": plain(len(calls) / span),
        "tokens_per_second": plain(sum(tokens) / span),
        "tokens_per_second_per_user": plain(users),
        "far_out": far_out(seconds),
        "samples": {
            "began": [call.began - began for call in calls],
            "ttft": [call.first for call in calls],
            "itl": [list(call.steps) for call in calls],
            "e2e": seconds,
            "tokens": tokens,
            "waited": [one.waited for one in served],
        },
    }
