"""Load time, cold and warm, and peak memory, each from a fresh process that makes one call of the largest cell."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgeformer.cli.benching.fresh import Request
from edgeformer.cli.benching.page_cache import drop
from edgeformer.cli.benching.telemetry.counters import NOT_SUPPORTED
from edgeformer.runtime.bundle import Artifact, Manifest
from edgeformer.runtime.errors import EdgeformerError
from edgeformer.runtime.machine_memory import ON_GPU


class ProcessError(EdgeformerError):
    """A process that a measurement started did not end well; its own message is in this one."""


def measure_starts(request: Request, manifest: Manifest, artifact: Artifact) -> dict[str, Any]:
    """What `load` and `memory` of a record's artifact say.

    Raises:
        ProcessError: the process ended without an answer.
    """
    files = [Path(request.bundle, name) for name in {**manifest.files, **artifact.files}]
    reason = drop(files)
    first, second = started(request), started(request)
    cold = {name: first[name] for name in ("load_seconds", "first_answer_seconds")} if reason is None else NOT_SUPPORTED
    warm = {name: second[name] for name in ("load_seconds", "first_answer_seconds")}
    load = {"cold": cold, "warm": warm, **({"cold_reason": reason} if reason else {})}
    return {"load": load, "memory": memory(artifact, second)}


def memory(artifact: Artifact, reply: Mapping[str, Any]) -> dict[str, Any]:
    def known(value: int | float | None) -> int | str:
        return NOT_SUPPORTED if value is None else int(value)

    device = known(reply["device_bytes"]) if artifact.backend in ON_GPU else "not used"
    return {"host_peak_bytes": known(reply["peak_bytes"]), "device_peak_bytes": device}


def started(request: Request) -> dict[str, Any]:
    """The reply of a fresh process, with `first_answer_seconds`: from its creation to the end of its call."""
    begin = time.perf_counter()
    reply = asked([sys.executable, "-m", "edgeformer.cli.benching.fresh"], dataclasses.asdict(request), {})
    return {**reply, "first_answer_seconds": time.perf_counter() - begin}


def asked(command: Sequence[str], request: Any, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a process replies to a line of JSON.

    Raises:
        ProcessError: it failed.
    """
    done = subprocess.run(
        command, input=json.dumps(request) + "\n", capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ProcessError(f"{' '.join(command[1:])} ended with exit code {done.returncode}: {last[0]}")
    reply: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reply
