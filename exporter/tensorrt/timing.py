"""Timings of kernels, kept in a file from one build to the next."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from edgeformer.exporter.tensorrt.report import LogLine

if TYPE_CHECKING:
    import tensorrt


def load_timings(
    config: tensorrt.IBuilderConfig, path: str | None, lines: list[LogLine]
) -> tensorrt.ITimingCache | None:
    """Give a build the timings of a file; a file from another GPU or version is left unread, and said so."""
    if path is None:
        return None
    content = Path(path).read_bytes() if Path(path).exists() else b""
    cache = config.create_timing_cache(content)
    if not config.set_timing_cache(cache, False):
        lines.append(LogLine("warning", f"timing cache {path} is of another GPU or version: begun anew"))
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, False)
    return cache


def save_timings(cache: tensorrt.ITimingCache | None, path: str | None) -> None:
    """Write the timings, so that a crash leaves the file as it was.

    Raises:
        OSError: writing failed.
    """
    if cache is None or path is None:
        return
    partial = Path(f"{path}.{os.getpid()}.partial")
    try:
        partial.write_bytes(cache.serialize())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
