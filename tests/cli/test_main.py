"""The program as a whole: help, exit codes, and what becomes of errors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMANDS = ("export", "optimize", "verify", "run", "inspect", "plan", "bench", "targets", "doctor")
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "tokenizers", "torch")

SHOW_HELP = f"""
import sys
from edgeformer.cli.main import app
for arguments in (["--help"], *([command, "--help"] for command in {COMMANDS})):
    try:
        app(arguments)
    except SystemExit as exit_info:
        assert exit_info.code == 0, arguments
print(*sorted(set({HEAVY}) & set(sys.modules)), file=sys.stderr)
"""


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", SHOW_HELP], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example_on_a_line_of_its_own(cli: Callable[..., Any], command: str) -> None:
    assert f"\n  Example:\n    edgeformer {command}" in cli(command, "--help").ok.out


def test_the_version_is_printed(cli: Callable[..., Any]) -> None:
    from importlib.metadata import version

    assert cli("--version").ok.out == f"edgeformer {version('edgeformer')}\n"


@pytest.mark.parametrize(
    "arguments",
    [(), ("fly",), ("--fast",), ("run",), ("optimize", "bundle"), ("export", "checkpoint"), ("targets", "--fast")],
    ids=str,
)
def test_wrong_usage_exits_with_2(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert "Usage: edgeformer" in result.out + result.err
    assert "Traceback" not in result.err


def test_an_interrupt_is_one_line(cli: Callable[..., Any], bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeformer.runtime.load", raising(KeyboardInterrupt()))
    assert cli("run", bundle, "word").refused() == "error: interrupted\n"


def test_a_bug_shows_its_traceback(program: Callable[..., subprocess.Popen[bytes]], bundle: Path) -> None:
    first = "import edgeformer.runtime\ndef load(*a, **k): raise RuntimeError('a bug')\nedgeformer.runtime.load = load"
    process = program("run", bundle, "word", first=first)
    out, err = process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert b"Traceback" in err
    assert err.endswith(b"RuntimeError: a bug\n")


def test_a_reader_that_goes_away_is_met_with_silence(program: Callable[..., subprocess.Popen[bytes]]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = program("targets", stdout=write)
    os.close(write)
    assert process.communicate()[1] == b""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("targets",), ("doctor", "--json")], ids=str)
def test_a_full_disk_behind_standard_output_is_one_line(
    program: Callable[..., subprocess.Popen[bytes]], arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w") as full:
        process = program(*arguments, stdout=full)
    assert process.communicate()[1] == b"error: standard output cannot be written: No space left on device\n"
    assert process.returncode == 1


def test_a_character_that_standard_output_lacks_is_one_line(
    program: Callable[..., subprocess.Popen[bytes]], bundle: Path
) -> None:
    place = bundle.rename(bundle.with_name("b\N{LATIN SMALL LETTER U WITH DIAERESIS}ndel"))
    process = program("inspect", "--json", place, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    out, err = process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert err.startswith(b"error: standard output takes ascii, which has no '\\xfc'")


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*arguments: object, **options: object) -> Any:
        raise error

    return fail
