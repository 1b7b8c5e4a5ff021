"""What TensorRT says while it builds: progress and log lines."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgeformer.exporter.tensorrt.api import TensorRT
from edgeformer.exporter.tensorrt.report import LogLine

if TYPE_CHECKING:
    import tensorrt

INTERVAL = 0.1  # seconds between two reports


@dataclasses.dataclass
class Phase:
    """A part of the work: how many of its steps are done, and what it is a step of."""

    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """How far a build is: phases nest, and one step of a phase may be a phase of its own.

    The fraction never falls, though phases come up that no one knew of.
    """

    def __init__(self) -> None:
        self.open: dict[str, Phase] = {}
        self.fraction = 0.0

    def start(self, name: str, parent: str | None, steps: int) -> None:
        self.open[name] = Phase(parent, max(1, steps))

    def step(self, name: str, number: int) -> None:
        if phase := self.open.get(name):
            phase.done = min(number + 1, phase.steps)
            self.fraction = max(self.fraction, self.reached(phase))

    def finish(self, name: str) -> None:
        self.open.pop(name, None)

    def reached(self, phase: Phase) -> float:
        """The whole's fraction, where this phase is the innermost."""
        fraction, parent = phase.done / phase.steps, phase.parent
        while parent is not None and (above := self.open.get(parent)) is not None:
            fraction, parent = min(1.0, (above.done + fraction) / above.steps), above.parent
        return fraction


def make_monitor(trt: TensorRT, report: Callable[[float, str], bool]) -> tensorrt.IProgressMonitor:
    """A progress monitor that reports now and then.

    Args:
        trt: the module.
        report: called with the fraction that is done and the phase's name; False cancels the build.
    """

    class Monitor(trt.IProgressMonitor):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.phases, self.lock, self.last, self.go_on = Phases(), threading.Lock(), 0.0, True

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            with self.lock:
                self.phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            with self.lock:
                self.phases.step(phase_name, step)
                if self.go_on and time.monotonic() - self.last > INTERVAL:
                    self.last = time.monotonic()
                    self.go_on = report(self.phases.fraction, phase_name)
                return self.go_on

        def phase_finish(self, phase_name: str) -> None:
            with self.lock:
                self.phases.finish(phase_name)

    return Monitor()


def make_logger(trt: TensorRT, lines: list[LogLine]) -> tensorrt.ILogger:
    """A logger that keeps every line; the verbose ones tell the layers of the compiled engine."""
    severity = trt.ILogger.Severity
    words = {
        severity.INTERNAL_ERROR: "internal error",
        severity.ERROR: "error",
        severity.WARNING: "warning",
        severity.INFO: "info",
        severity.VERBOSE: "verbose",
    }

    class Logger(trt.ILogger):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            lines.append(LogLine(words[severity], msg.strip()))

    return Logger()
