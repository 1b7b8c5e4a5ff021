"""The program, called as a user calls it."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@dataclasses.dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output holds JSON and nothing else."""
        return json.loads(self.out)

    @property
    def ok(self) -> Result:
        assert self.code == 0, self.err
        return self

    def refused(self, *parts: str) -> str:
        """One message that says all of these, exit code 1, no traceback."""
        assert self.code == 1, self
        assert self.err.count("error:") == 1
        assert "Traceback" not in self.err
        message = self.err[self.err.index("error:") :]
        assert [part for part in parts if part not in message] == [], message
        return message


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `edgeformer ARGUMENTS` in this process, with `stdin` as bytes."""
    from edgeformer.cli.main import main

    def run(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["edgeformer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return Result(int(exit_info.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def program() -> Callable[..., subprocess.Popen[bytes]]:
    """Starts `edgeformer ARGUMENTS` in a process of its own, after the Python lines in `first`."""

    def start(*arguments: object, first: str = "", **options: Any) -> subprocess.Popen[bytes]:
        script = f"{first}\nfrom edgeformer.cli.main import main\nmain()\n"
        command = [sys.executable, "-c", script, *map(str, arguments)]
        return subprocess.Popen(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})

    return start


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle to change at will, alone in its folder."""
    return shutil.copytree(tiny_bundle, tmp_path / "place" / "bundle")


@pytest.fixture
def edit(bundle: Path) -> Callable[[Callable[[dict[str, Any]], None]], None]:
    """Changes bundle.json by a function."""

    def change(by: Callable[[dict[str, Any]], None]) -> None:
        path = bundle / "bundle.json"
        values = json.loads(path.read_text())
        by(values)
        path.write_text(json.dumps(values))

    return change


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, bytes]]:
    """Reads every file below a folder."""

    def read(folder: Path) -> dict[str, bytes]:
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    return read
