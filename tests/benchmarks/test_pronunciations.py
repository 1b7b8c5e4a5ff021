from __future__ import annotations

from pathlib import Path

import pytest
from pronunciations import edit_distance, error_rates, read_pronunciations, read_words, spread

from edgeformer.runtime.errors import InputError


@pytest.mark.parametrize(
    ("said", "reference", "distance"),
    [
        ("", "", 0),
        ("", "K AE T", 3),
        ("K AE T", "", 3),
        ("K AE T", "K AE T", 0),
        ("K AE T", "K AH T", 1),
        ("K AE T S", "K AE T", 1),
        ("AE T", "K AE T", 1),
        ("AE K T", "K AE T", 2),
        ("K IH T AH N", "S IH T IH NG", 3),
        ("AA", "A A", 2),  # phonemes are compared, not letters
    ],
)
def test_edit_distance_counts_insertions_deletions_and_substitutions(said: str, reference: str, distance: int) -> None:
    assert edit_distance(said.split(), reference.split()) == distance
    assert edit_distance(reference.split(), said.split()) == distance


def test_a_word_is_right_if_it_equals_any_reference() -> None:
    references = [[("T", "AH"), ("T", "OW")], [("K", "AE", "T")]]
    rates = error_rates(["T OW", "K AE T"], references)
    assert (rates.wer, rates.per) == (0, 0)
    assert error_rates(["T OW", "K AE"], references).wer == 50


def test_per_is_taken_from_the_nearest_reference() -> None:
    # To the first reference there are 3 edits in 5 phonemes, to the second one edit in 4; the other word has 2 in 3.
    references = [[("A", "B", "C", "D", "E"), ("A", "B", "X", "Y")], [("K", "AE", "T")]]
    rates = error_rates(["A B X", "T"], references)
    assert (rates.words, rates.wrong, rates.edits, rates.phonemes) == (2, 2, 3, 7)
    assert rates.wer == 100
    assert rates.per == pytest.approx(100 * 3 / 7)


def test_of_equally_near_references_the_first_counts() -> None:
    references = [[("A", "B"), ("A",)]]
    assert error_rates(["A C"], references).phonemes == 2
    assert error_rates(["A C"], [references[0][::-1]]).phonemes == 1


def test_saying_nothing_loses_every_phoneme() -> None:
    rates = error_rates([""], [[("K", "AE", "T")]])
    assert (rates.wer, rates.per) == (100, 100)


def test_answers_and_references_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="zip"):
        error_rates(["K"], [])


def test_a_list_keeps_every_pronunciation_in_order(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("B\tB IY\nA\tAH\nB\tB EY\n", encoding="utf-8")
    found = read_pronunciations(path)
    assert list(found.items()) == [("B", [("B", "IY"), ("B", "EY")]), ("A", [("AH",)])]
    assert read_words(path) == ["B", "A"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("A\tAH\nB AH\n", "line 2"),
        ("A\t\n", "line 1"),
        ("\tAH\n", "line 1"),
        ("A\tAH\n\nB\tB\n", "line 2"),
        ("", "is empty"),
    ],
)
def test_a_list_of_another_form_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_pronunciations(path)


def test_a_list_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_pronunciations(tmp_path / "none")


def test_chosen_words_are_spread_over_the_list() -> None:
    words = [str(i) for i in range(10)]
    assert spread(words, 5) == ["0", "2", "4", "6", "8"]
    assert spread(words, 3) == ["0", "3", "6"]
    assert spread(words, 99) == words
