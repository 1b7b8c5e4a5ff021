"""A decoding loop makes nothing anew in a step, whatever the vocabulary, and its caches grow as texts do."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from edgeformer.runtime import GenerationConfig, Model
from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.backends.onnxruntime_cpu import FIRST_CAPACITY, OnnxRuntimeRows
from edgeformer.runtime.beam import FEW, beam_search, best
from edgeformer.runtime.greedy import greedy_steps
from edgeformer.runtime.processors import processors_of
from edgeformer.runtime.prompts import Limits, Prompt
from edgeformer.runtime.sampling import Sampler

VOCABULARY = 1 << 16
WARM_UP, STEPS = 4, 24


class FixedRows:
    """Rows of a large vocabulary whose logits are always in the same memory."""

    def __init__(self, batch: int) -> None:
        self.cache_lengths = np.zeros(batch, np.int64)
        # As a model's are, most of which are far from the likeliest.
        self.given = np.random.default_rng(0).normal(scale=5, size=VOCABULARY).astype(np.float32)
        self.logits = np.empty((batch, 1, VOCABULARY), np.float32)
        self.peaks: list[int] = []

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        now, peak = tracemalloc.get_traced_memory()
        self.peaks.append(peak - now)
        tracemalloc.reset_peak()
        self.logits[...] = self.given
        return self.logits

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        if len(rows) != len(self.logits):
            self.logits = np.empty((len(rows), 1, VOCABULARY), np.float32)

    def close(self) -> None:
        pass


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def greedy(rows: FixedRows, options: GenerationConfig, prompt: Prompt, limits: Limits) -> None:
    sampler = Sampler(options, [0]) if options.do_sample else None
    list(greedy_steps(rows, prompt, limits, processors_of(options, limits, VOCABULARY), sampler))


def beams(rows: FixedRows, options: GenerationConfig, prompt: Prompt, limits: Limits) -> None:
    beam_search(rows, prompt, limits, options)


@pytest.mark.parametrize(
    ("search", "options"),
    [
        (greedy, {}),
        (greedy, {"suppress_tokens": [5]}),
        (greedy, {"do_sample": True}),
        (greedy, {"do_sample": True, "top_k": 0}),
        (greedy, {"do_sample": True, "top_k": 0, "top_p": 0.9}),
        (greedy, {"do_sample": True, "top_k": 0, "min_p": 0.1, "temperature": 1.5}),
        (beams, {"num_beams": 4}),
    ],
    ids=str,
)
@pytest.mark.usefixtures("traced")
def test_no_step_copies_the_vocabulary(search: Callable[..., None], options: dict[str, object]) -> None:
    config, rows = GenerationConfig(**options), FixedRows(1)  # type: ignore[arg-type]
    search(rows, config, Prompt.of([[3]]), Limits((), 0, STEPS))
    steps = rows.peaks[WARM_UP:]
    assert len(steps) == STEPS - WARM_UP
    assert max(steps) < 0.6 * rows.logits.nbytes  # whether a logit is large enough takes a byte, not four


def test_a_step_of_the_shape_of_the_step_before_uses_its_buffers(fast: Model) -> None:
    rows = fast.executor.start([[5, 9, 14, 2]], 30)
    assert isinstance(rows, OnnxRuntimeRows)
    ids = np.array([[1]])
    logits, caches, block = rows.step(ids), rows.caches, rows.block
    tracemalloc.start()
    for _ in range(FIRST_CAPACITY - 1):
        assert np.shares_memory(rows.step(ids), logits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows.caches is caches
    assert rows.block is block
    assert peak < 4000  # Python's own frames and numbers
    rows.close()


def test_caches_begin_small_and_double(fast: Model) -> None:
    rows, alone = (fast.executor.start([[5, 9, 14, 2]], 30) for _ in range(2))
    assert isinstance(rows, OnnxRuntimeRows)
    assert isinstance(alone, OnnxRuntimeRows)
    alone.reserve(30)
    ids, capacities = np.random.default_rng(0).integers(3, 60, (30, 1, 1)), []
    for token in ids:
        np.testing.assert_allclose(rows.step(token), alone.step(token), atol=1e-5)
        capacities.append(rows.block.array.shape[3])
    assert sorted(set(capacities)) == [8, 16, 30]
    assert capacities.index(16) == 8
    rows.close()
    alone.close()


def test_what_is_kept_for_other_texts_is_bounded(fast: Model) -> None:
    spares = fast.executor.spares  # type: ignore[attr-defined]
    for length in range(2, 30):
        fast.generate([[3] * length, [4] * length], GenerationConfig(max_new_tokens=20), batch_size=1)
    assert spares.count == sum(map(len, spares.kept.values())) <= spares.MOST
    assert spares.nbytes == sum(one.nbytes for kept in spares.kept.values() for one in kept) <= spares.MOST_BYTES


@pytest.mark.parametrize("width", [FEW // 4, 8 * FEW])
@pytest.mark.parametrize("finite", [None, 3])
def test_the_best_are_found_among_few_and_among_many(width: int, finite: int | None) -> None:
    values = np.random.default_rng(width).normal(size=width).astype(np.float32)
    if finite is not None:
        values[finite:] = -np.inf
    found, at = zip(*best(values.copy(), 8), strict=True)
    np.testing.assert_array_equal(found, -np.sort(-values)[:8])
    there = np.array(found) > -np.inf
    np.testing.assert_array_equal(values[list(at)][there], np.array(found)[there])


def test_beams_of_a_large_vocabulary_that_has_too_few_tokens_left_find_what_there_is() -> None:
    rows, limits = FixedRows(1), Limits((0,), 0, 3)
    rows.given[2:] = -np.inf  # a text of some ones, and the end
    (found,) = beam_search(rows, Prompt.of([[3]]), limits, GenerationConfig(num_beams=4, num_return_sequences=4))
    assert sorted(one.token_ids for one in found) == [(), (1,), (1, 1), (1, 1, 1)]
