"""Kernels that TensorRT for RTX compiled for this GPU, kept from one run to the next."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

from edgeformer.runtime.bundle import Artifact, Bundle

FILE = "runtime.cache"


def places(bundle: Bundle, artifact: Artifact, role: str) -> list[Path]:
    """Where the cache of a plan may be: beside it, or in the user's folder where the bundle cannot be written."""
    plan = artifact.graphs[role]
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgeformer"
    return [(bundle.folder / plan).with_name(f"{role}.{FILE}"), user / f"{artifact.files[plan].sha256[:32]}.{FILE}"]


def read(files: list[Path], cache: Any) -> None:
    """Fill a runtime cache from the first file that fits it; one of another GPU or version is left alone."""
    for file in files:
        with contextlib.suppress(OSError):
            if cache.deserialize(file.read_bytes()):
                return


def write(files: list[Path], cache: Any) -> None:
    """Keep a runtime cache in the first place that can be written; none is no fault, only the next start is slower."""
    content = bytes(cache.serialize())
    for file in files:
        try:
            if file.exists() and file.read_bytes() == content:
                return
            replace(file, content)
            return
        except OSError:
            continue


def replace(file: Path, content: bytes) -> None:
    """Write a file at once, since other processes may be reading it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
        Path(temporary).replace(file)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
