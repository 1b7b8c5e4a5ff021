"""Files out of the system's page cache, so that the next load reads them from the disk as the first one would."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

PAGE = 4096


def drop(files: Iterable[Path]) -> str | None:
    """Ask the kernel to forget files' pages, and look whether it did.

    Returns:
        None where it did, else why the next load will not be a cold one.
    """
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        return "this system cannot be asked to drop files from its page cache"
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # pages that are still to be written are not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            if cached(descriptor, os.fstat(descriptor).st_size):
                return f"{path.name} stays in the page cache"
        except OSError as error:
            return f"{path.name}: {error.strerror or error}"
        finally:
            os.close(descriptor)
    return None


def cached(descriptor: int, size: int) -> bool:
    """Whether the first or the last page of a file can be read without waiting for a disk."""
    page = bytearray(PAGE)
    for offset in {0, max(0, size - 1) // PAGE * PAGE}:
        try:
            if os.preadv(descriptor, [page], offset, os.RWF_NOWAIT):
                return True
        except BlockingIOError:
            continue
    return False
