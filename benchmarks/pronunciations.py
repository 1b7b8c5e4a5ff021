"""Pronunciation lists, and how far what a model says is from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from edgeformer.runtime.errors import InputError

Phonemes = tuple[str, ...]


def read_pronunciations(path: Path) -> dict[str, list[Phonemes]]:
    """Each word's pronunciations in a file of `WORD<tab>PHONEME PHONEME ...` lines, both in the order of the file.

    Raises:
        InputError: the file cannot be read, is empty, or has a line of another form; the first such line is named.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    words: dict[str, list[Phonemes]] = {}
    for number, line in enumerate(lines, 1):
        word, tab, phonemes = line.partition("\t")
        if not (word.strip() and tab and phonemes.strip()):
            raise InputError(f"{path} line {number} is {line!r:.60}, expected WORD<tab>PHONEMES")
        words.setdefault(word.strip(), []).append(tuple(phonemes.split()))
    if not words:
        raise InputError(f"{path} is empty: give at least one pronunciation")
    return words


def read_words(path: Path) -> list[str]:
    """One word a line, each once; what follows a tab (a pronunciation) is left out."""
    words = (line.split("\t")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(word for word in words if word))


def spread(words: Sequence[str], count: int) -> list[str]:
    """At most `count` words, evenly spaced over all of them."""
    count = min(count, len(words))
    return [words[i * len(words) // count] for i in range(count)]


def edit_distance(said: Sequence[str], reference: Sequence[str]) -> int:
    """The fewest insertions, deletions and substitutions that turn one into the other (Levenshtein)."""
    distances = list(range(len(reference) + 1))  # from what was said so far, here nothing, to each prefix
    for i, phoneme in enumerate(said, 1):
        before, distances[0] = distances[0], i
        for j, wanted in enumerate(reference, 1):
            kept = before + (phoneme != wanted)
            before = distances[j]
            distances[j] = min(kept, distances[j] + 1, distances[j - 1] + 1)
    return distances[-1]


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorRates:
    """Over a list of words, each judged by the nearest of its references: the first of those that are equally near.

    Attributes:
        wrong: words that equal none of their references.
        edits: summed edit distances to the nearest references.
        phonemes: summed lengths of those references.
    """

    words: int
    wrong: int
    edits: int
    phonemes: int

    @property
    def wer(self) -> float:
        """Word error rate in percent."""
        return 100 * self.wrong / self.words

    @property
    def per(self) -> float:
        """Phoneme error rate in percent."""
        return 100 * self.edits / self.phonemes


def error_rates(said: Sequence[str], references: Sequence[Sequence[Phonemes]]) -> ErrorRates:
    """Judge what was said, phonemes separated by spaces, against the references of each word."""
    wrong = edits = phonemes = 0
    for text, candidates in zip(said, references, strict=True):
        distances = [edit_distance(text.split(), candidate) for candidate in candidates]
        distance = min(distances)
        wrong += distance > 0
        edits += distance
        phonemes += len(candidates[distances.index(distance)])
    return ErrorRates(len(said), wrong, edits, phonemes)
