from __future__ import annotations

import pytest
from peer_works import plan
from random_checkpoints import DECODERS, ENCODERS, SPECIAL, TRANSFORMERS

SHAPES = {"decoder": DECODERS["tiny"], "encoder": ENCODERS["tiny"], "paper": TRANSFORMERS["tiny"]}


@pytest.mark.parametrize("kind", SHAPES)
def test_every_run_is_asked_the_same(kind: str) -> None:
    first, second = (plan(kind, SHAPES[kind], [1, 8], 4, 10) for _ in range(2))
    assert first == second
    assert len({work.name for work in first}) == len(first)
    for work in first:
        assert all(len(SPECIAL) <= token < 512 for row in work.given["inputs"] for token in row)


def test_what_is_counted_of_a_language_model() -> None:
    prompt, long, single, ragged = plan("decoder", SHAPES["decoder"], [1, 8], 4, 0)
    assert [prompt.units, long.units, single.units, ragged.units] == [128, 512, 3, 24]
    assert [work.after_first for work in (prompt, long, single, ragged)] == [False, False, True, True]
    lengths = sorted(map(len, ragged.given["inputs"]))
    assert (len(lengths), lengths[0], lengths[-1]) == (8, 8, 64)


def test_sentences_are_of_equal_and_of_unequal_lengths() -> None:
    equal, ragged = plan("encoder", SHAPES["encoder"], [8], 0, 10)
    assert set(map(len, equal.given["inputs"])) == {128}
    lengths = sorted(map(len, ragged.given["inputs"]))
    assert (len(set(lengths)), lengths[0], lengths[-1]) == (10, 16, 256)
