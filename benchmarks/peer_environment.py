"""Peers' virtual environments, made where they are missing, and their models."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path

from edgeformer.runtime.errors import EdgeformerError

PEERS = Path(__file__).parent / "peers"
REQUIREMENTS, PROGRAM = PEERS / "ctranslate2-requirements.txt", PEERS / "ctranslate2_g2p.py"


class PeerError(EdgeformerError):
    """The peer cannot be installed, or refuses the checkpoint; its own message is on standard error, or in this one."""


def peer_python(folder: Path, requirements: Path = REQUIREMENTS) -> Path:
    """The interpreter of a peer's virtual environment, with the versions that are pinned.

    What is already there stays: pip then asks no index.

    Raises:
        PeerError: pip failed.
    """
    python = folder / "bin/python"
    if not (folder / "bin/pip").exists():  # which is made last
        venv.create(folder, with_pip=True)
    call([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)],
         f"{requirements.name} cannot be installed into {folder}")  # fmt: skip
    return python


def convert(python: Path, checkpoint: Path, output: Path, quantization: str) -> None:
    """Write the peer's model of a checkpoint of the letters-to-phonemes example.

    Raises:
        PeerError: the peer's converter refused.
    """
    call([str(python), str(PROGRAM), "convert", str(checkpoint), str(output), "--quantization", quantization],
         f"{checkpoint} cannot be converted")  # fmt: skip


def call(command: Sequence[str], failure: str) -> None:
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if code != 0:
        raise PeerError(f"{failure}: exit code {code}, the reason is above")


def call_quietly(command: Sequence[str], log: Path) -> None:
    """Run a program whose output goes into a file.

    Raises:
        PeerError: it failed; the message is the last line that it printed.
    """
    with log.open("wb") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if code != 0:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        last = lines[-1].strip() if lines else "it printed nothing"
        raise PeerError(f"{last.removeprefix('error: ')} (exit code {code}, {log})")
