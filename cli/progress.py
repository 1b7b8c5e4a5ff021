"""What is going on, on standard error."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

PATIENCE = 1.0  # seconds before a bar is shown


class Steps:
    """Called with the name of each step as it begins; tells what each took, where there is a terminal."""

    def __init__(self, console: Console) -> None:
        self.console, self.status = console, console.status("")
        self.current, self.begin = "", time.perf_counter()

    def __call__(self, name: str) -> None:
        if not self.console.is_terminal:
            self.console.print(name, soft_wrap=True)
            return
        self.finish()
        self.current, self.begin = name, time.perf_counter()
        self.status.update(Text(name))

    def detail(self, fraction: float, what: str) -> None:
        """How much of the step is done, from 0 to 1, and what it does; shown where there is a terminal."""
        self.status.update(Text(f"{self.current}  {fraction:4.0%}  {what}"))

    def finish(self) -> None:
        if self.current:
            self.console.print(f"  {self.current}  {time.perf_counter() - self.begin:.1f} s", style="dim")


@contextlib.contextmanager
def steps() -> Iterator[Steps]:
    """Gives what to call as steps begin: a spinner, and what each step took; plain lines off a terminal."""
    shown = Steps(Console(stderr=True, highlight=False, markup=False))
    if not shown.console.is_terminal:
        yield shown
        return
    with shown.status:
        yield shown
        shown.finish()


@contextlib.contextmanager
def counting(what: str, total: int | None, *, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with how many more are done: a bar on a terminal, once it has taken a while.

    Args:
        what: the things that are counted.
        total: how many there will be, None where that is unknown.
        hidden: show nothing, as where results are printed while they are counted.
    """
    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    task, begin = progress.add_task(what, total=total), time.perf_counter()

    def advance(done: int) -> None:
        progress.advance(task, done)
        if not progress.live.is_started and time.perf_counter() - begin > PATIENCE:
            progress.start()

    try:
        yield advance
    finally:
        progress.stop()
