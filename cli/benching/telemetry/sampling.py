"""A thread that reads counters beside the run, and never takes more than a hundredth of a core's time."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from edgeformer.cli.benching.telemetry.counters import Counter, CounterError

PERIOD = 0.1  # seconds
MOST_SHARE = 0.01  # of the time that reading may take: slow counters are read less often


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """What one counter said at each time; None where it could not be read then."""

    counter: Counter
    values: tuple[float | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """All counters over time.

    Attributes:
        times: seconds since the run began.
        series: one for each counter, as long as times.
        seconds: how long the thread ran.
        busy_seconds: processor time that it took meanwhile.
    """

    times: tuple[float, ...]
    series: tuple[Series, ...]
    seconds: float
    busy_seconds: float

    @property
    def overhead(self) -> float:
        """The thread's share of one core."""
        return self.busy_seconds / self.seconds if self.seconds else 0.0


class Sampler:
    """A context manager: samples from its beginning to its end.

    Args:
        counters: what to read.
        clock: seconds, the same that the run is timed with.
        period: seconds between two samples; longer where MOST_SHARE asks for it.
    """

    def __init__(
        self, counters: Sequence[Counter], clock: Callable[[], float] = time.perf_counter, period: float = PERIOD
    ) -> None:
        self.counters, self.clock, self.period = counters, clock, period
        self.times: list[float] = []
        self.rows: list[list[float | None]] = []
        self.ended = threading.Event()
        self.began, self.busy = clock(), 0.0
        self.thread = threading.Thread(target=self.run, name="telemetry", daemon=True)

    def __enter__(self) -> Sampler:
        if self.counters:
            self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        if self.counters:
            self.thread.join()

    def run(self) -> None:
        while True:
            begin = time.perf_counter()
            self.sample()
            self.busy = time.thread_time()  # this thread's alone
            took = time.perf_counter() - begin
            if self.ended.wait(pause(took, self.period)):
                self.sample()
                return

    def sample(self) -> None:
        self.times.append(self.clock())
        self.rows.append([value_of(counter) for counter in self.counters])

    def samples(self) -> Samples:
        """All until now; to be asked for after the end."""
        times = tuple(moment - self.began for moment in self.times)
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.counters)
        series = tuple(Series(counter, tuple(values)) for counter, values in zip(self.counters, columns, strict=True))
        return Samples(times, series, times[-1] if times else 0.0, self.busy)


def pause(took: float, period: float) -> float:
    """Seconds to wait after a sample that took so long, for reading to stay below its share."""
    return max(period - took, took * (1 / MOST_SHARE - 1), 0.0)


def value_of(counter: Counter) -> float | None:
    try:
        return counter.read()
    except CounterError:
        return None
