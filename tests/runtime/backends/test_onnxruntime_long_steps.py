"""Steps in parts give each wanted position what one run would, in as few runs as the kernels allow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeformer.runtime.backends import Floats, Ints, onnxruntime_long_steps
from edgeformer.runtime.backends.onnxruntime_long_steps import chunk_size, long_step
from edgeformer.runtime.backends.onnxruntime_rotation import RotationTables


class Rows:
    """Rows whose logits are each column's id and position; they record what was run."""

    comes_apart = True

    def __init__(self, held: list[int], *, limited: bool = True, shapes: list[tuple[int, int]] | None = None) -> None:
        self.cache_lengths, self.capacity, self.source_lengths = np.array(held), 4096, np.empty(0, np.int64)
        self.longest = max(held)
        self.shapes: list[tuple[int, int]] = [] if shapes is None else shapes
        artifact, sizes = (
            SimpleNamespace(long_steps_need_empty_caches=limited),
            SimpleNamespace(num_heads=2, vocab_size=2),
        )
        self.executor = SimpleNamespace(artifact=artifact, sizes=sizes)

    def row(self, at: int) -> Rows:
        one = Rows([int(self.cache_lengths[at])], shapes=self.shapes)
        one.cache_lengths = self.cache_lengths[at : at + 1]
        return one

    def run(self, input_ids: Ints, lengths: Ints | None, logits_at: Ints | None) -> Floats:
        assert len(input_ids) == 1 or input_ids.shape[1] == 1 or not self.executor.artifact.long_steps_need_empty_caches
        self.shapes.append((input_ids.shape[0], input_ids.shape[1]))
        each = np.arange(len(input_ids))[:, None]
        at = np.full((len(input_ids), 1), input_ids.shape[1] - 1) if logits_at is None else logits_at
        found = np.stack([input_ids[each, at], self.cache_lengths[:, None] + at], axis=-1)
        self.cache_lengths += input_ids.shape[1]
        return found.astype(np.float32)


@pytest.fixture(autouse=True)
def chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime_long_steps, "CHUNK", 4)
    monkeypatch.setattr(onnxruntime_long_steps, "LEAST_CHUNK", 1)
    monkeypatch.setattr(onnxruntime_long_steps, "FEW", 3)


def stepped(rows: Any, q_len: int, lengths: list[int] | None, at: list[list[int]] | None) -> None:
    """A step, which gives what was asked for and leaves the rows as long as they are."""
    before, batch = rows.cache_lengths.copy(), len(rows.cache_lengths)
    ids = np.random.default_rng(0).integers(0, 99, (batch, q_len))
    real = np.full(batch, q_len) if lengths is None else np.array(lengths)
    wanted = (real - 1)[:, None] if at is None else np.array(at)
    logits = long_step(rows, ids, None if lengths is None else real, None if at is None else wanted)
    assert logits is not None
    assert rows.cache_lengths.tolist() == (before + real).tolist()
    assert rows.longest == (before + real).max()
    there = wanted < real[:, None]
    np.testing.assert_array_equal(logits[..., 0][there], np.take_along_axis(ids, wanted, 1)[there])
    np.testing.assert_array_equal(logits[..., 1][there], (before[:, None] + wanted)[there])


@pytest.mark.parametrize("at", [None, [[0, 10, 4, 3]], [[2, 2]]])
def test_a_long_row_goes_in_chunks(at: list[list[int]] | None) -> None:
    rows = Rows([5])
    stepped(rows, 11, None, at)
    assert rows.shapes == [(1, 4), (1, 4), (1, 3)]


def test_rows_of_very_different_lengths_go_one_by_one() -> None:
    rows = Rows([0, 0, 0])
    stepped(rows, 10, [10, 2, 5], [[9, 0], [1, 1], [4, 3]])
    assert rows.shapes == [(1, 4), (1, 4), (1, 2), (1, 2), (1, 4), (1, 1)]


def test_few_rows_over_their_pasts_go_one_by_one_and_many_token_by_token() -> None:
    few, many = Rows([3, 0]), Rows([3, 0, 2, 9])
    stepped(few, 3, [1, 3], None)
    assert few.shapes == [(1, 1), (1, 3)]
    stepped(many, 3, [1, 3, 2, 3], [[0, 0], [2, 1], [1, 0], [0, 2]])
    assert many.shapes == [(4, 1)] * 3


def test_rows_that_do_not_come_apart_go_token_by_token() -> None:
    rows = Rows([3, 0])
    rows.comes_apart = False
    stepped(rows, 5, None, None)
    assert rows.shapes == [(2, 1)] * 5


def test_attention_that_takes_everything_goes_in_chunks_of_all_rows() -> None:
    rows = Rows([3, 0], limited=False)
    stepped(rows, 9, [2, 9], [[1, 0], [8, 3]])
    assert rows.shapes == [(2, 4), (2, 4), (2, 1)]


@pytest.mark.parametrize(("held", "q_len"), [([0, 0], 6), ([7], 4)])
def test_what_one_run_takes_is_left_to_it(held: list[int], q_len: int) -> None:
    assert long_step(Rows(held), np.zeros((len(held), q_len), np.int64), None, None) is None  # type: ignore[arg-type]


def test_chunks_are_smaller_where_scores_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime_long_steps, "SCORES", 2 * 4096 * 2)  # of two tokens
    rows = Rows([5])
    stepped(rows, 5, None, None)
    assert rows.shapes == [(1, 2), (1, 2), (1, 1)]


def test_tables_grow_with_caches_and_stay_within_the_models_positions() -> None:
    runs: list[int] = []

    class Session:
        def run(self, outputs: None, given: dict[str, Ints]) -> list[Floats]:
            runs.append(given["positions"].shape[1])
            return [given["positions"][0, :, None].astype(np.float32)]

        def get_outputs(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name="cosines.0")]

    tables = RotationTables(Session(), 99, np.float16)  # type: ignore[arg-type]
    first = tables.reaching(8)
    assert tables.reaching(64) is first
    second = tables.reaching(65)
    assert runs == [64, 128]
    assert second["cosines.0"].dtype == np.float16
    assert second["cosines.0"][[64, 99, 127], 0].tolist() == [64, 99, 99]


def test_chunks_are_as_short_for_a_long_source_as_for_a_long_cache() -> None:
    rows = Rows([0])
    rows.capacity = 8
    before = chunk_size(rows)  # type: ignore[arg-type]
    rows.source_lengths = np.array([1 << 40])
    assert chunk_size(rows) == onnxruntime_long_steps.LEAST_CHUNK < before  # type: ignore[arg-type]
