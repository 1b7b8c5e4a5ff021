"""Standard output: lines, JSON and tables. Everything else goes to standard error."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgeformer.runtime.errors import WriteError


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Turns a failure to write standard output into one line; a reader that went away stays a BrokenPipeError.

    Raises:
        WriteError: the disk is full, or a character has no place in standard output's encoding.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WriteError(f"standard output cannot be written: {error.strerror or error}") from error
    except UnicodeEncodeError as error:
        lacking = error.object[error.start : error.end]
        raise WriteError(
            f"standard output takes {error.encoding}, which has no {lacking!r}: set PYTHONIOENCODING=utf-8"
        ) from error


def print_line(text: str = "", *, end: str = "\n", flush: bool = False) -> None:
    with writing():
        print(text, end=end, flush=flush)


def print_json(value: Any, *, indent: int | None = 1) -> None:
    print_line(json.dumps(value, indent=indent, ensure_ascii=False))


def write_json(path: Path, value: Any) -> None:
    """Write a value into a file.

    Raises:
        WriteError: the disk is full, or the place cannot be written.
    """
    try:
        path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror or error}") from error


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Rows of cells under their columns, and an empty line.

    Args:
        columns: the headings; where all are empty, no heading is shown.
        rows: a cell for each column.
        numbers: the columns that are aligned to the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Away from a terminal there is no width to fold cells for.
    terminal, drawn = sys.stdout.isatty(), io.StringIO()
    console = Console(file=drawn, force_terminal=terminal, width=None if terminal else 1000, highlight=False)
    table = Table(
        box=box.SIMPLE_HEAD if any(columns) else None, show_header=any(columns), pad_edge=False, show_edge=False
    )
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    for line in drawn.getvalue().splitlines():
        print_line(line.rstrip())
    print_line()


def size(count: float) -> str:
    """A number of bytes for people: 21.6 MB."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
