"""The bare loop: tokens may be added in any portions, to rows of any lengths, and give what they give at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeformer.runtime import Model, Session
from edgeformer.runtime.backends import Rows
from edgeformer.runtime.errors import InputError, OptionError

if TYPE_CHECKING:
    from edgeformer.models.transformer import Transformer

SOURCES = [[5, 9, 14, 3, 2], [7, 2], [4, 4, 8, 21, 12, 16, 2]]
TARGETS = [[1, 30, 41, 52, 63], [1, 45, 33], [1, 68, 31, 59]]

Logits = NDArray[np.float32]


def padded(rows: Sequence[Sequence[int]], fill: int = 0) -> NDArray[np.int64]:
    ids = np.full((len(rows), max(1, *map(len, rows))), fill, np.int64)
    for row, given in zip(ids, rows, strict=True):
        row[: len(given)] = given
    return ids


def everywhere(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)


def in_portions(
    model: Model, counts: Sequence[Sequence[int]], *, targets: Sequence[Sequence[int]] = TARGETS, fill: int = 0
) -> list[Logits]:
    """Each row's logits at all its positions; step i takes counts[i][row] tokens of each row, which may be none."""
    found: list[list[Logits]] = [[] for _ in targets]
    with model.session(SOURCES) as session:
        taken = np.zeros(len(targets), np.int64)
        for portion in counts:
            rows = [target[at : at + n] for target, at, n in zip(targets, taken, portion, strict=True)]
            ids = padded(rows, fill)
            logits = session.step(ids, np.array(portion), everywhere(ids))
            for row, n in enumerate(portion):
                found[row].append(logits[row, :n])
            taken += portion
            assert session.cache_lengths.tolist() == taken.tolist()
    return [np.concatenate(row) for row in found]


def alone(model: Model, source: Sequence[int], target: Sequence[int]) -> Logits:
    """A row's logits (its target length, vocab_size), in a session of its own, at once."""
    ids = padded([target])
    with model.session([source]) as session:
        return session.step(ids, None, everywhere(ids))[0]


def same(found: Sequence[Logits], expected: Sequence[Logits], atol: float = 1e-4) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


# Portions and rows

PORTIONS = {
    "at once": [[5, 3, 4]],
    "3 + 2": [[3, 3, 3], [2, 0, 1]],
    "2 + 3": [[2, 2, 2], [3, 1, 2]],
    "one at a time": [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 0, 0]],
    "1 + 4": [[1, 1, 1], [4, 2, 3]],
    "4 + 1": [[4, 3, 4], [1, 0, 0]],
    "each at its own pace": [[1, 3, 2], [0, 0, 2], [3, 0, 0], [1, 0, 0]],
}


@pytest.mark.parametrize("counts", PORTIONS.values(), ids=PORTIONS)
def test_portions_give_what_each_row_gets_alone_and_at_once(model: Model, counts: list[list[int]]) -> None:
    expected = [alone(model, source, target) for source, target in zip(SOURCES, TARGETS, strict=True)]
    same(in_portions(model, counts), expected)


def test_it_is_what_pytorch_computes_without_a_cache(exact: Model, pytorch: Transformer) -> None:
    import torch

    for source, target in zip(SOURCES, TARGETS, strict=True):
        with torch.inference_mode():
            logits = pytorch(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([target]))
        same([alone(exact, source, target)], [logits[0].numpy()])


@pytest.mark.parametrize("counts", PORTIONS.values(), ids=PORTIONS)
def test_what_stands_in_the_padding_changes_nothing(model: Model, counts: list[list[int]]) -> None:
    same(in_portions(model, counts, fill=68), in_portions(model, counts, fill=0))


def test_a_long_prompt_and_a_long_loop_outgrow_the_first_cache(model: Model) -> None:
    """Caches grow with what is in them, up to the last position."""
    target = [1, *(30 + (7 * at) % 39 for at in range(31))]
    for portions in ([32], [10, 10, 10, 2], [17] + [1] * 15, [1] * 32):
        with model.session([SOURCES[0]]) as session:
            found, at = [], 0
            for n in portions:
                ids = np.array([target[at : at + n]])
                found.append(session.step(ids, None, everywhere(ids))[0])
                at += n
        same([np.concatenate(found)], [alone(model, SOURCES[0], target)])


# What a step returns


def test_logits_are_those_of_each_rows_last_token(model: Model) -> None:
    expected = [alone(model, source, target)[-1:] for source, target in zip(SOURCES, TARGETS, strict=True)]
    with model.session(SOURCES) as session:
        logits = session.step(padded(TARGETS), np.array([len(target) for target in TARGETS]))
    assert logits.shape == (3, 1, model.sizes.vocab_size)
    assert logits.dtype == np.float32
    same(logits, expected)


def test_without_lengths_every_token_is_real(model: Model) -> None:
    targets = [target[:3] for target in TARGETS]
    expected = [alone(model, source, target)[-1:] for source, target in zip(SOURCES, targets, strict=True)]
    with model.session(SOURCES) as session:
        same(session.step(targets), expected)
        assert session.cache_lengths.tolist() == [3, 3, 3]


@pytest.mark.parametrize("first", [[], [1, 1, 1]], ids=["empty caches", "filled caches"])
def test_logits_at_picks_positions_in_any_order_and_any_number(model: Model, first: list[int]) -> None:
    at = np.array([[4, 0, 0, 2], [2, 1, 0, 0], [3, 3, 0, 1]])
    expected = [
        alone(model, source, target)[positions] for source, target, positions in zip(SOURCES, TARGETS, at, strict=True)
    ]
    rows, lengths = padded(TARGETS), np.array([len(target) for target in TARGETS])
    if first:
        at = np.maximum(at - 1, 0)
        expected = [
            alone(model, source, target)[1:][positions]
            for source, target, positions in zip(SOURCES, TARGETS, at, strict=True)
        ]
    with model.session(SOURCES) as session:
        if first:
            session.step(rows[:, :1])
            rows, lengths = rows[:, 1:], lengths - 1
        same(session.step(rows, lengths, at), expected)


def test_logits_are_the_callers_to_keep(model: Model) -> None:
    with model.session(SOURCES) as session:
        first = session.step([[1], [1], [1]])
        kept = first.copy()
        session.step([[30], [40], [50]])
        np.testing.assert_array_equal(first, kept)
        session.cache_lengths[:] = 0  # a copy as well
        assert session.cache_lengths.tolist() == [2, 2, 2]


def test_sessions_do_not_disturb_each_other(model: Model) -> None:
    expected = [alone(model, source, target) for source, target in zip(SOURCES, TARGETS, strict=True)]
    sessions = [model.session([source]) for source in SOURCES]
    found: list[list[Logits]] = [[], [], []]
    for at in range(3):
        for row, session in enumerate(sessions):
            found[row].append(session.step([[TARGETS[row][at]]])[0])
        model.generate("between")
    same([np.concatenate(row) for row in found], [row[:3] for row in expected])


def test_a_session_takes_what_generate_takes(fast: Model) -> None:
    for inputs, rows in (("word", 1), (["a", "word"], 2), ([5, 6, 2], 1), (["a", [5, 2]], 2)):
        with fast.session(inputs) as session:  # type: ignore[arg-type]
            assert session.step([[1]] * rows).shape == (rows, 1, 69)
    for inputs, reason in (([], "there are no inputs"), ("w0rd", "'0' at 1"), ([[]], "no tokens")):
        with pytest.raises(InputError, match=reason):
            fast.session(inputs)  # type: ignore[arg-type]


# Capacity


def test_a_row_holds_its_capacity_and_no_more(model: Model) -> None:
    with model.session(SOURCES, capacity=5) as session:
        session.step([[1, 30, 31]] * 3)
        with pytest.raises(InputError, match="a row would hold 6 tokens, the session's capacity is 5"):
            session.step([[32, 33, 34]] * 3)
        assert session.cache_lengths.tolist() == [3, 3, 3]
        found = session.step([[32, 33]] * 3, None, np.array([[0, 1]] * 3))
        with pytest.raises(InputError, match="a row would hold 6 tokens, the session's capacity is 5"):
            session.step([[34]] * 3)
    same(found, [alone(model, source, [1, 30, 31, 32, 33])[3:] for source in SOURCES])


def test_without_a_capacity_a_row_holds_the_models_positions(fast: Model) -> None:
    with fast.session("word") as session:
        assert session.capacity == 32
        session.step([[1] * 32])
        with pytest.raises(InputError, match="a row would hold 33 tokens, the session's capacity is 32"):
            session.step([[1]])


@pytest.mark.parametrize("capacity", [0, -1, 33])
def test_a_capacity_that_the_model_does_not_have_is_refused(fast: Model, capacity: int) -> None:
    with pytest.raises(OptionError, match=f"capacity is {capacity}, expected 1 to 32, the model's positions"):
        fast.session("word", capacity=capacity)


def test_memory_is_taken_as_rows_grow(fast: Model) -> None:
    """The model's positions may be many, and most rows are short."""
    rows = fast.executor.start(SOURCES, 10**9)
    for _ in range(20):
        rows.step(np.ones((3, 1), np.int64))
    rows.close()


def test_memory_that_is_kept_for_later_does_not_grow_with_every_shape(fast: Model) -> None:
    """A server sees every number of rows and every length, for months."""

    def use(lengths: range) -> None:
        for batch in range(1, 9):
            for length in lengths:
                fast.score([[5] * 30 + [2]] * batch, [[30] * length] * batch)

    tracemalloc.start()
    use(range(2, 3))
    before, _ = tracemalloc.get_traced_memory()
    use(range(3, 31, 3))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 5e6


# Wrong steps


def test_another_batch_or_shape_is_refused(fast: Model) -> None:
    with fast.session(SOURCES) as session:
        for ids in ([[1], [1]], [[1]] * 4, [[], [], []], [1, 1, 1], [[[1]]] * 3):
            with pytest.raises(InputError, match=r"expected \(3, q_len\) with q_len of at least 1"):
                session.step(ids)  # type: ignore[arg-type]
        assert session.cache_lengths.tolist() == [0, 0, 0]


WRONG: dict[str, tuple[Any, ...]] = {
    "an id past the vocabulary": ([[1, 69]] * 3,),
    "a negative id": ([[1, -1]] * 3,),
    "fractions": ([[1.5, 2.0]] * 3,),
    "rows of different lengths": ([[1, 2], [1], [1]],),
    "more real tokens than there are": ([[1, 2]] * 3, [1, 2, 3]),
    "fewer than none": ([[1, 2]] * 3, [1, 2, -1]),
    "lengths of another batch": ([[1, 2]] * 3, [1]),
    "lengths in two dimensions": ([[1, 2]] * 3, [[1], [1], [1]]),
    "a position past the tokens": ([[1, 2]] * 3, None, [[2]] * 3),
    "a negative position": ([[1, 2]] * 3, None, [[-1]] * 3),
    "positions of another batch": ([[1, 2]] * 3, None, [[0]]),
    "positions in one dimension": ([[1, 2]] * 3, None, [0, 0, 0]),
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG)
def test_a_wrong_step_is_refused_and_changes_nothing(fast: Model, arguments: tuple[Any, ...]) -> None:
    ids, *others = arguments
    with fast.session(SOURCES) as session:
        session.step([[1]] * 3)
        with pytest.raises(InputError):
            session.step(ids, *(None if other is None else np.array(other) for other in others))
        assert session.cache_lengths.tolist() == [1, 1, 1]
        same([session.step([[30]] * 3)[1]], [alone(fast, SOURCES[1], [1, 30])[1:]])


def test_lists_will_do_as_lengths_and_positions(fast: Model) -> None:
    with fast.session(SOURCES) as session:
        session.step(padded(TARGETS), [5, 3, 4], [[0]] * 3)  # type: ignore[arg-type]


# Closing


def close_twice(session: Session) -> None:
    with session:
        session.step([[1]] * 3)
    session.__exit__()


def test_closing_twice_does_not_hand_the_memory_out_twice(fast: Model) -> None:
    close_twice(fast.session(SOURCES))
    expected = [alone(fast, source, target[:3]) for source, target in zip(SOURCES, TARGETS, strict=True)]
    first, second = fast.session(SOURCES), fast.session(SOURCES)
    found = []
    for at in range(3):
        found.append(first.step([[target[at]] for target in TARGETS]))
        second.step([[60]] * 3)
    same(np.concatenate(found, axis=1), expected)


def test_a_closed_session_takes_no_steps(fast: Model) -> None:
    with fast.session(SOURCES) as session:
        session.step([[1]] * 3)
    with pytest.raises(InputError, match="closed"):
        session.step([[1]] * 3)


# Choosing rows, as the decoding loops do


def select(rows: Rows, history: list[list[int]], chosen: list[int], sources: list[int] | None = None) -> None:
    rows.select(np.array(chosen), None if sources is None else np.array(sources))
    history[:] = [list(history[row]) for row in chosen]
    assert rows.cache_lengths.tolist() == [len(row) for row in history]


def step(rows: Rows, history: list[list[int]], tokens: list[int]) -> Logits:
    for row, token in zip(history, tokens, strict=True):
        row.append(token)
    return rows.step(np.array(tokens)[:, None])[:, 0].copy()


def test_rows_are_chosen_with_their_sources(model: Model) -> None:
    """Rows are dropped, repeated and exchanged; each then goes on as its own history would have it."""
    rows = model.executor.start(SOURCES, 32)
    history: list[list[int]] = [[], [], []]

    def check(logits: Logits, sources: list[int]) -> None:
        expected = [alone(model, SOURCES[source], row)[-1] for source, row in zip(sources, history, strict=True)]
        same(logits, expected)

    check(step(rows, history, [1, 1, 1]), [0, 1, 2])
    select(rows, history, [0, 0, 1, 1, 2, 2])
    check(step(rows, history, [30, 31, 32, 33, 34, 35]), [0, 0, 1, 1, 2, 2])
    select(rows, history, [1, 0, 3, 3, 4, 5])  # within each source: exchanged, one doubled, as they were
    check(step(rows, history, [40, 41, 42, 43, 44, 45]), [0, 0, 1, 1, 2, 2])
    select(rows, history, [1, 1, 5, 4], [0, 2])
    check(step(rows, history, [50, 51, 52, 53]), [0, 0, 2, 2])
    select(rows, history, [3, 2], [1])
    for token in range(30, 50):  # past the first cache
        check(step(rows, history, [token, token + 1]), [2, 2])
    select(rows, history, [1, 0])
    check(step(rows, history, [60, 61]), [2, 2])
    rows.close()


def test_rows_of_different_lengths_are_chosen(model: Model) -> None:
    # On some processors several rows' last bits differ from those of one, and a rounded activation makes more of it.
    atol = 1e-4 if model.artifact.precision == "fp32" else 0.1
    rows = model.executor.start(SOURCES, 32)
    rows.step(padded(TARGETS), np.array([len(target) for target in TARGETS]))
    history = [list(target) for target in TARGETS]
    select(rows, history, [1, 2], [1, 2])
    same(step(rows, history, [60, 61]), [alone(model, SOURCES[row + 1], history[row])[-1] for row in range(2)], atol)
    select(rows, history, [1], [1])
    same(step(rows, history, [62]), [alone(model, SOURCES[2], history[0])[-1]], atol)
    rows.close()
