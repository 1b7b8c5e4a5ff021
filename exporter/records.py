"""What a manifest records of an artifact's making; torch-free."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edgeformer.runtime.bundle import FileRecord, record_file

PORTABLE = "onnx"  # name, target and folder of the artifact that every bundle begins with

Progress = Callable[[str], None]  # called with the name of each part of the work as it begins


def record_files(bundle: Path, folder: Path) -> dict[str, FileRecord]:
    """Every file of a folder in the bundle, by its path from the bundle."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(bundle).as_posix(): record_file(path) for path in files}


def versions(*packages: str) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
