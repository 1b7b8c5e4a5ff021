"""A process of its own for what holds gigabytes and may crash: started, listened to, and ended with this one's work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any

from edgeformer.exporter.tensorrt.requests import BuildRequest, Built, Installed
from edgeformer.runtime.errors import BackendUnavailableError, BuildError

OnBuild = Callable[[float, str], None]  # the fraction of a build that is done, and its phase

COMMAND = (sys.executable, "-m", "edgeformer.exporter.tensorrt.worker")
GRACE = 5.0  # seconds to end in, before it is killed
TAIL = 3  # lines of a crashed process's output that a message quotes


def probe(module: str, install: str) -> Installed:
    """What this machine has of a TensorRT module, without loading it here.

    Args:
        module: its name.
        install: how to get it, for the message.

    Raises:
        BackendUnavailableError: it is not installed, or does not load; how to get it.
    """
    with contextlib.closing(answers("probe", module, f"loading {module}")) as said:
        for answer in said:
            if "installed" in answer:
                return Installed(**answer["installed"])
            raise BackendUnavailableError(f"{module} cannot be loaded here: {answer['unavailable']}; {install}")
    raise BuildError(f"loading {module} ended without an answer")


def run_build(request: BuildRequest, folder: Path, on_build: OnBuild = lambda fraction, phase: None) -> Built:
    """Build one plan in a process of its own, which ends with this call.

    Args:
        request: what to build.
        folder: for the request's file.
        on_build: called now and then with how far the build is.

    Raises:
        BuildError: TensorRT refused, or the process crashed; one line says which, and what was last heard of it.
        OSError: the plan could not be written.
    """
    path = folder / f"{request.role}.request.json"
    path.write_text(request.to_json(), encoding="utf-8")
    with contextlib.closing(answers("build", str(path), f"building the {request.role}")) as said:
        for answer in said:
            if "phase" in answer:
                on_build(answer["fraction"], answer["phase"])
            elif "built" in answer:
                return Built(**answer["built"])
            elif "errno" in answer:
                raise OSError(answer["errno"], answer["reason"])
            else:
                raise BuildError(answer.get("failed") or answer["unavailable"])
    raise BuildError(f"building the {request.role} ended without an answer")


def answers(task: str, argument: str, what: str) -> Generator[dict[str, Any], None, None]:
    """What the process answers, as it comes. However this ends, the process does.

    Raises:
        BuildError: it crashed.
    """
    with tempfile.TemporaryFile() as log:
        with contextlib.ExitStack() as stack:
            with interrupts_later():
                # A group of its own: Ctrl-C reaches this process, which then ends the other. `-m` would import what
                # lies in the current folder: it stands in one with nothing of ours.
                process = subprocess.Popen(
                    [*COMMAND, task, argument], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                    start_new_session=True, cwd=os.sep,
                )  # fmt: skip
                stack.enter_context(ended(process))
            for line in process.stdout or ():
                if line.endswith(b"\n"):  # else it crashed while it wrote
                    yield json.loads(line)
            process.wait()
        if process.returncode:
            raise BuildError(crash(what, process.returncode, log))


@contextlib.contextmanager
def interrupts_later() -> Iterator[None]:
    """Lets Ctrl-C wait until the block ends: within it, a process that has begun would be forgotten."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    waiting = list[tuple[int, Any]]()
    before = signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
    if waiting and callable(before):
        before(*waiting[0])


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends a process when the block ends, asking first."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout:
            process.stdout.close()


def crash(what: str, code: int, log: IO[bytes]) -> str:
    """One line about a process that ended badly."""
    log.seek(0)
    said = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    if code == -signal.SIGKILL:
        how = "was killed, most likely for lack of memory: stop other programs, add swap, or build on another machine"
    elif code < 0:
        how = f"crashed ({signal.Signals(-code).name})"
    else:
        how = f"ended with exit code {code}"
    return f"{what} {how}; last heard of it: {' | '.join(said[-TAIL:]) or 'nothing'}"
