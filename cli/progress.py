"""What is going on, on standard error."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

PATIENCE = 1.0  # seconds before a bar is shown


@contextlib.contextmanager
def steps() -> Iterator[Callable[[str], None]]:
    """Gives a function that says which step begins: a spinner, and what each step took; plain lines off a terminal."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda name: console.print(name, soft_wrap=True)
        return
    current, begin = "", time.perf_counter()

    def finish() -> None:
        if current:
            console.print(f"  {current}  {time.perf_counter() - begin:.1f} s", style="dim")

    with console.status("") as status:

        def step(name: str) -> None:
            nonlocal current, begin
            finish()
            current, begin = name, time.perf_counter()
            status.update(Text(name))

        yield step
        finish()


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
