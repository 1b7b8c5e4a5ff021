from __future__ import annotations

import sys
from pathlib import Path

import pytest
from peer_environment import PROGRAM, REQUIREMENTS, PeerError, convert

ROOT = Path(__file__).parents[2]


def test_what_the_peer_refuses_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PeerError, match="cannot be converted: exit code"):
        convert(Path(sys.executable), tmp_path / "none", tmp_path / "model", "float32")
    assert capfd.readouterr().err


def test_the_peer_s_program_and_pins_are_there() -> None:
    assert PROGRAM.exists()
    lines = [line for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert [line for line in lines if "==" not in line] == []


def test_both_sides_spell_words_with_the_same_tokenizers() -> None:
    pin = next(line for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines() if line.startswith("tokenizers"))
    assert pin in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
