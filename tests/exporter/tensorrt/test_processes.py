"""Whatever becomes of the process that builds, its caller gets one line, and the process is gone."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from edgeformer.exporter.tensorrt import processes
from edgeformer.exporter.tensorrt.processes import interrupts_later, probe, run_build
from edgeformer.exporter.tensorrt.requests import BuildRequest, Installed
from edgeformer.runtime.errors import BackendUnavailableError, BuildError

REQUEST = BuildRequest("tensorrt_rtx", "decoder", "graph.onnx", "a.plan", (), ())
PROGRESS = (
    "import json, os, signal, sys, time; print(json.dumps({'fraction': 0.5, 'phase': str(os.getpid())}), flush=True)"
)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in for the process that builds: a script to be written."""
    script = tmp_path / "worker.py"
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, str(script)))
    return script


def failure(worker: Path, code: str) -> str:
    worker.write_text(f"{PROGRESS}\n{code}\n")
    with pytest.raises(BuildError) as caught:
        run_build(REQUEST, worker.parent)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_crash_is_one_line_with_the_last_that_was_heard(worker: Path) -> None:
    last = "Assertion failed: kernel != nullptr"
    message = failure(worker, f"print({last!r}, file=sys.stderr, flush=True); os.kill(os.getpid(), signal.SIGSEGV)")
    assert message == f"building the decoder crashed (SIGSEGV); last heard of it: {last}"


def test_a_kill_is_told_as_what_it_most_likely_is(worker: Path) -> None:
    message = failure(worker, "os.kill(os.getpid(), signal.SIGKILL)")
    assert message.startswith("building the decoder was killed, most likely for lack of memory: ")
    assert message.endswith("last heard of it: nothing")


def test_a_crash_in_the_middle_of_an_answer_is_a_crash(worker: Path) -> None:
    message = failure(
        worker, "sys.stdout.write('{\"built\": {'); sys.stdout.flush(); os.kill(os.getpid(), signal.SIGBUS)"
    )
    assert message == "building the decoder crashed (SIGBUS); last heard of it: nothing"


def test_an_exception_in_the_process_is_told_with_its_last_lines(worker: Path) -> None:
    message = failure(worker, "raise RuntimeError('a bug')")
    assert message.startswith("building the decoder ended with exit code 1; last heard of it: ")
    assert message.endswith("RuntimeError: a bug")


def test_a_process_that_says_nothing_is_no_success(worker: Path) -> None:
    assert failure(worker, "") == "building the decoder ended without an answer"


def test_what_the_builder_refuses_is_told_as_it_is(worker: Path) -> None:
    assert failure(worker, "print(json.dumps({'failed': 'no kernel for it'}))") == "no kernel for it"


def test_a_full_disk_in_the_process_is_one_here(worker: Path) -> None:
    worker.write_text("import json; print(json.dumps({'errno': 28, 'reason': 'No space left on device'}))")
    with pytest.raises(OSError, match="No space left on device") as caught:
        run_build(REQUEST, worker.parent)
    assert caught.value.errno == 28


@pytest.mark.parametrize("first", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_an_interrupt_ends_the_process_also_one_that_would_not_end(
    worker: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE", 0.5)
    worker.write_text(f"{first}\n{PROGRESS}\ntime.sleep(600)\n")
    started: list[int] = []

    def interrupt(fraction: float, phase: str) -> None:
        started.append(int(phase))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_build(REQUEST, worker.parent, interrupt)
    assert not is_running(started[0])


def test_a_module_that_is_not_there_is_refused_with_how_to_get_it() -> None:
    with pytest.raises(BackendUnavailableError) as caught:
        probe("tensorrt", "get it here")
    assert str(caught.value) == "tensorrt cannot be loaded here: No module named 'tensorrt'; get it here"


def test_a_module_that_is_there_tells_its_version_and_the_gpu() -> None:
    installed = probe("tensorrt_rtx", "")
    assert isinstance(installed, Installed)
    assert installed.module == "tensorrt_rtx"
    assert [part.isdigit() for part in installed.version.split(".")] == [True] * 4
    assert (installed.gpu is None) == (not Path("/dev/nvidia0").exists())


def test_an_interrupt_while_a_process_begins_waits_until_it_can_be_ended() -> None:
    before, reached = signal.signal(signal.SIGINT, signal.default_int_handler), []
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_later():
            reached.append(signal.raise_signal(signal.SIGINT))
        assert reached == [None], "the block went on"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
