"""What a terminal shows while there is something to wait for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Program = Callable[..., "subprocess.Popen[bytes]"]


def on_a_terminal(program: Program, *arguments: object, first: str = "") -> tuple[bytes, bytes]:
    """Standard output, and what a terminal gets that shows standard error."""
    screen, cable = os.openpty()
    process = program(*arguments, first=first, stderr=cable, env={**os.environ, "TERM": "xterm"})
    os.close(cable)
    shown = b""
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:  # so the system says that the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(screen)
    out, _ = process.communicate()
    assert process.returncode == 0, shown
    return out, shown


def test_steps_are_shown_with_what_they_took(program: Program, tiny_bundle: Path) -> None:
    out, shown = on_a_terminal(program, "verify", tiny_bundle, "--artifact", "onnx")
    assert b"greedy equals PyTorch" in out
    assert b"verifying onnx with the bundle's samples  " in shown
    assert b" s\x1b[0m\r\n" in shown


@pytest.mark.parametrize(("patience", "visible"), [(0, True), (1e9, False)])
def test_a_count_is_shown_once_it_takes_a_while(
    program: Program, tiny_bundle: Path, patience: float, visible: bool
) -> None:
    first = f"import edgeformer.cli.progress as p; p.PATIENCE = {patience}"
    arguments = (
        "bench",
        tiny_bundle,
        "hello",
        "--artifact",
        "onnx",
        "--rounds",
        2,
        "--warmup",
        1,
        "--calls-only",
        "--json",
    )
    out, shown = on_a_terminal(program, *arguments, first=first)
    assert out.startswith(b"{")
    assert (b"calls" in shown) == visible
    if not visible:
        assert shown == b""


def test_away_from_a_terminal_steps_are_plain_lines(cli: Callable[..., object], tiny_bundle: Path) -> None:
    result = cli("verify", tiny_bundle, "--artifact", "onnx")
    assert getattr(result, "err", None) == "verifying onnx with the bundle's samples\n"
