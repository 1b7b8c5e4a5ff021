"""Writing a folder so that a crash, a full disk or Ctrl-C leaves the old one or none."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgeformer.runtime.bundle import MANIFEST
from edgeformer.runtime.errors import OutputExistsError, WriteError


@contextlib.contextmanager
def staged(output: Path, *, begin_with: Path | None = None, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside `output`, which takes its place when the block ends well, and goes when it does not.

    Args:
        output: what is to be written.
        begin_with: a folder whose files the temporary one begins with; as hard links where the disk has them, so
            replace such files, don't write into them.
        overwrite: whether a bundle that is there may be replaced. Anything else that is there never is.

    Raises:
        OutputExistsError: something is there that may not be replaced, or another program has changed it meanwhile.
        WriteError: the disk is full, or the place cannot be written.
    """
    check_free(output, overwrite)
    before = state(output)
    output = output.resolve()  # a name to write beside, for `.` as well; and what a link leads to, not the link
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{output.name}.partial-", dir=output.parent))
        partial.chmod(0o755)
    except OSError as error:
        raise WriteError(f"cannot write {output}: {error.strerror}: choose another place") from error
    try:
        if begin_with is not None:
            shutil.copytree(begin_with, partial, copy_function=link_or_copy, dirs_exist_ok=True)
        yield partial
        if state(output) != before:
            raise OutputExistsError(f"{output} has changed meanwhile, by another program: run this again")
        take_place(partial, output)
    except OSError as error:
        raise WriteError(
            f"writing {output} failed: {error.strerror or error}: free some space or choose another place; "
            "nothing that was there before has changed"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_free(output: Path, overwrite: bool) -> None:
    """Refuse an output that holds something which may not be replaced.

    Raises:
        OutputExistsError: a file, a folder that is not a bundle, or a bundle without `overwrite`.
    """
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / MANIFEST).is_file():
        raise OutputExistsError(f"{output} exists and is not a bundle: choose another output, or remove it yourself")
    if not overwrite:
        raise OutputExistsError(f"{output} holds a bundle already: choose another output, or pass --overwrite")


def state(output: Path) -> tuple[int, int] | None:
    """Which bundle is there: its file is never written into, but replaced; None where there is none."""
    try:
        found = (output / MANIFEST).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


def link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
        return target
    except OSError:
        return str(shutil.copy2(source, target))


def take_place(partial: Path, output: Path) -> None:
    if not output.exists():
        partial.rename(output)
        return
    old = partial.with_name(partial.name.replace(".partial-", ".old-"))
    output.rename(old)
    try:
        partial.rename(output)
    except BaseException:
        old.rename(output)
        raise
    shutil.rmtree(old, ignore_errors=True)
