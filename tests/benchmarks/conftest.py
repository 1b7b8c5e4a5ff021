"""The programs of `benchmarks/`, which is not a package: its modules are found as when one of them is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

LETTERS = "abcdefghijklmnopqrstuvwxyz'"


@pytest.fixture(scope="session")
def pronunciations(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A phoneme for each letter, which the tiny checkpoint says in part; every fourth word has two pronunciations."""
    phonemes = (
        "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V W Y Z ZH".split()
    )
    said = {letter: phonemes[i * len(phonemes) // len(LETTERS)] for i, letter in enumerate(sorted(LETTERS))}
    lines = []
    for i, word in enumerate(words):
        spoken = [said[letter] for letter in word]
        lines += [f"{word}\t{' '.join(spoken)}"] + [f"{word}\t{' '.join(spoken[::-1])}"] * (i % 4 == 0)
    path = tmp_path_factory.mktemp("pronunciations") / "list"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
