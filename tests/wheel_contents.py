"""Check that a wheel holds all modules of the checkout, and what is built: `python tests/wheel_contents.py WHEEL`."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
FOLDERS = ("cli", "exporter", "models", "runtime")
SOURCES = (".c", ".h")
BUILT = "edgeformer/runtime/native/_operators.abi3.so"


def expected_files() -> set[str]:
    """What the checkout's four folders must leave in a wheel: all but C, of which a compiler makes the library."""
    on_disk = (path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    shipped = (path for path in on_disk if "__pycache__" not in path.parts and path.suffix not in (*SOURCES, ".so"))
    built = {BUILT} if shutil.which("cc") else set()
    return built | {f"edgeformer/{path.as_posix()}" for path in shipped}


def wrong_contents(wheel: Path) -> list[str]:
    """One sentence for each file too few or too many."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not PurePosixPath(name).parts[0].endswith(".dist-info")}
    expected = expected_files()
    return [
        *(f"{name} is missing: list its package, or its kind of data, in pyproject.toml" for name in expected - held),
        *(f"{name} does not belong in the wheel" for name in held - expected),
    ]


def main() -> None:
    wheel = Path(sys.argv[1])
    if problems := wrong_contents(wheel):
        sys.exit("\n".join([f"{wheel.name}:", *sorted(problems)]))
    print(f"{wheel.name}: all {len(expected_files())} files of {', '.join(FOLDERS)}, and no others")


if __name__ == "__main__":
    main()
