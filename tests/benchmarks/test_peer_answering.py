from __future__ import annotations

from typing import Any

import pytest
from answering import CannotError, Work, answer
from peer_catalogue import ALL, KINDS, OURS


def count(work: Work) -> list[list[Any]]:
    return [[len(row)] * work.new_tokens for row in work.inputs]


def test_a_new_work_is_done_untimed_before_and_first_tokens_are_timed_alone() -> None:
    asked: list[int] = []

    def run(work: Work) -> list[list[Any]]:
        asked.append(work.new_tokens)
        return count(work)

    reply = answer(run, Work([[5, 6], [7]], 2, new_tokens=3), True)
    assert asked == [3, 1, 1, 3]
    assert reply["outputs"] == [[2, 2, 2], [1, 1, 1]]
    assert reply["first_seconds"] > 0
    assert reply["seconds"] > 0


def test_rows_are_cut_into_calls_and_sentences_of_like_lengths_stay_together() -> None:
    rows = [[1] * length for length in (4, 1, 3, 2)]
    assert [call.lengths for call in Work(rows, 2, new_tokens=1).calls()] == [[4, 1], [3, 2]]
    assert [call.lengths for call in Work(rows, 2).calls()] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("failure", "message"),
    [(CannotError("no beams"), "no beams"), (RuntimeError("bad\n  shape"), "RuntimeError: bad shape")],
)
def test_a_failure_is_a_reason(failure: Exception, message: str) -> None:
    def run(work: Work) -> list[list[Any]]:
        raise failure

    assert answer(run, Work([[1]], 1, new_tokens=1), False) == {"cannot": message}


def test_a_text_that_ends_early_is_no_answer() -> None:
    reply = answer(lambda work: [[1]], Work([[1]], 1, new_tokens=2), False)
    assert reply == {"cannot": "gave 1 new tokens in place of 2"}


def test_every_peer_has_its_files_and_a_reason_for_what_it_lacks() -> None:
    for peer in ALL:
        assert peer.program.exists()
        assert set(peer.formats) | set(peer.lacking) == set(KINDS)
        if peer.name != OURS:
            lines = peer.requirements.read_text(encoding="utf-8").splitlines()
            assert [line for line in lines if not line.startswith("#") and "==" not in line] == []
