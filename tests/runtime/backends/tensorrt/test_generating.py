"""Engines give what ONNX Runtime gives on a CPU, token for token."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest

from edgeformer.runtime import Generation, GenerationConfig, Model
from edgeformer.runtime.errors import InputError, OptionError

from .conftest import BATCH, CAPACITY, Machine, MakeBundle

GREEDY = GenerationConfig(max_new_tokens=7)
BEAMS = GenerationConfig(max_new_tokens=7, num_beams=4)
N_BEST = dataclasses.replace(BEAMS, num_return_sequences=4)
CONFIGS = {
    "greedy": GREEDY,
    "greedy, forced to go on": GenerationConfig(max_new_tokens=9, min_new_tokens=5),
    "greedy, as long as there is room": GenerationConfig(),
    "beam 4": BEAMS,
    "n-best": N_BEST,
    "beam 2, never early": GenerationConfig(max_new_tokens=9, num_beams=2, early_stopping="never", length_penalty=2.0),
}


def same(found: list[Generation], expected: list[Generation]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert [h.token_ids for h in one.hypotheses] == [h.token_ids for h in other.hypotheses]
        assert [h.score for h in one.hypotheses] == pytest.approx([h.score for h in other.hypotheses], abs=1e-4)
        assert [h.finish_reason for h in one.hypotheses] == [h.finish_reason for h in other.hypotheses]
        assert one.text == other.text


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_ragged_batches_give_the_cpus_tokens(
    on_gpu: Model, on_cpu: Model, words: list[str], config: GenerationConfig
) -> None:
    same(on_gpu.generate(words[:40], config), on_cpu.generate(words[:40], config))


def test_rows_finish_at_different_steps(on_gpu: Model, words: list[str]) -> None:
    """Otherwise the tests above would show little."""
    lengths = {len(found.token_ids) for found in on_gpu.generate(words[:40], GenerationConfig())}
    assert len(lengths) > 5


@pytest.mark.parametrize("config", [GREEDY, N_BEST], ids=["greedy", "n-best"])
def test_caches_that_are_not_written_in_place_change_sides(
    machine: Machine, make_bundle: MakeBundle, on_cpu: Model, words: list[str], config: GenerationConfig
) -> None:
    model = machine.load(make_bundle(attention="primitive", in_place=False))
    same(model.generate(words[:20], config), on_cpu.generate(words[:20], config))


def test_an_engine_that_cannot_be_asked_for_aliases_is_taken_at_its_records_word(
    machine: Machine, make_bundle: MakeBundle, on_cpu: Model, words: list[str]
) -> None:
    """Before 10.15: a primitive form has new tensors, our own plugin writes in place."""
    machine.installed["tensorrt"] = "10.3.0"
    bundle = make_bundle(
        attention="primitive", in_place=False, plan={"aliases": None}, version="10.3.0.26", caches_in_place=False
    )
    same(machine.load(bundle).generate(words[:9], BEAMS), on_cpu.generate(words[:9], BEAMS))


def test_half_precision_caches_move_as_their_bytes(machine: Machine, make_bundle: MakeBundle, words: list[str]) -> None:
    """Rows keep what they had while others leave and beams change places."""
    model = machine.load(make_bundle(dtype="float16"))
    for config in (GREEDY, N_BEST):
        together = model.generate(words[:9], config)
        alone = [model.generate([word], config)[0] for word in words[:9]]
        for one, other in zip(together, alone, strict=True):
            assert one.token_ids == other.token_ids
            assert one.score == pytest.approx(other.score, abs=2e-2)


def test_streams_and_scores_are_the_cpus(on_gpu: Model, on_cpu: Model, words: list[str]) -> None:
    for word in words[:5]:
        assert list(on_gpu.stream(word)) == list(on_cpu.stream(word))
    targets = [found.token_ids for found in on_cpu.generate(words[:40], GenerationConfig(min_new_tokens=25))]
    assert max(map(len, targets)) > 3 * 8  # the engine takes a step of 8 tokens at most
    found, expected = on_gpu.score(words[:40], targets), on_cpu.score(words[:40], targets)
    for one, other in zip(found, expected, strict=True):
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)


def test_a_greedy_step_brings_ids_and_no_logits_to_the_host(
    machine: Machine, engine_bundle: Path, words: list[str]
) -> None:
    model = machine.load(engine_bundle)
    before = machine.cuda.downloaded
    (found,) = model.generate(words[:1], GREEDY)
    steps = found.timings.steps
    assert machine.cuda.downloaded - before == steps * 2 * 256  # next_ids and next_log_probs, each aligned
    before = machine.cuda.downloaded
    (found,) = model.generate(words[:1], GenerationConfig(max_new_tokens=2, min_new_tokens=2))
    assert machine.cuda.downloaded - before == 2 * (2 * 256 + 4 * model.sizes.vocab_size)


# What was built bounds what can be asked for


def test_generate_splits_batches_that_are_larger_than_the_profile(
    on_gpu: Model, on_cpu: Model, words: list[str]
) -> None:
    done: list[int] = []
    found = on_gpu.generate(words[:37], GREEDY, batch_size=1000, on_done=done.append)
    assert done == [16, 16, 5]
    same(found, on_cpu.generate(words[:37], GREEDY))
    done.clear()
    on_gpu.generate(words[:10], BEAMS, on_done=done.append)
    assert done == [4, 4, 2]


def test_a_session_of_more_rows_than_the_profile_is_refused(on_gpu: Model, words: list[str]) -> None:
    with pytest.raises(InputError, match="17 rows at once, artifact engines takes 16"):
        on_gpu.session(words[:17])
    with on_gpu.session(words[:16]) as session:
        assert session.step([[1]] * 16).shape == (16, 1, on_gpu.sizes.vocab_size)


def test_more_beams_than_rows_are_refused(on_gpu: Model) -> None:
    with pytest.raises(OptionError, match="num_beams is 17, artifact engines was built for 16 rows"):
        on_gpu.generate("a", GenerationConfig(num_beams=BATCH[2] + 1))


def test_the_capacity_is_the_engines(
    machine: Machine, make_bundle: MakeBundle, on_cpu: Model, words: list[str]
) -> None:
    model = machine.load(make_bundle(capacity=12))
    config = GenerationConfig(min_new_tokens=11)
    found = model.generate(words[:9], config)
    assert {len(generation.token_ids) for generation in found} <= {11, 12}
    same(found, on_cpu.generate(words[:9], dataclasses.replace(config, max_new_tokens=12)))
    with pytest.raises(OptionError, match="max_new_tokens is 13, artifact engines was built for 12: optimize"):
        model.generate("a", GenerationConfig(max_new_tokens=13))
    with pytest.raises(OptionError, match="capacity is 13, expected 1 to 12, which artifact engines was built for"):
        model.session("a", capacity=13)
    with pytest.raises(InputError, match="a target has 12 tokens.*capacity of 12"):
        model.score(["a"], [[30] * 12])
    with model.session("a") as session:
        assert session.capacity == 12
        session.step([[1] * 12])
        with pytest.raises(InputError, match="capacity is 12"):
            session.step([[1]])
    assert CAPACITY > 12


def test_a_source_beyond_the_profile_is_refused(machine: Machine, make_bundle: MakeBundle) -> None:
    from .conftest import profiles

    short = {role: tuple({**p, "source_len": (1, 4, 9)} for p in several) for role, several in profiles().items()}
    model = machine.load(make_bundle(profiles=short))
    assert model.generate([[3] * 9], GREEDY)
    with pytest.raises(InputError, match="an input has 10 tokens, artifact engines was built for 9: shorten it, or"):
        model.generate([[3] * 10], GREEDY)


# Rows


def test_rows_go_on_as_their_own_history_would_have_it(on_gpu: Model, on_cpu: Model) -> None:
    """Rows are dropped, repeated and exchanged at random, with those of other sources."""
    rng = np.random.default_rng(0)
    sources = [[5, 9, 14, 3, 2], [7, 2], [4, 4, 8, 21, 12, 16, 2]]
    rows = on_gpu.executor.start(sources, 32)
    origins = np.arange(3)
    history: list[list[int]] = [[], [], []]
    for turn in range(12):
        lengths = rng.integers(1, 4, len(origins))
        ids = rng.integers(3, 69, (len(origins), 3))
        found = rows.step(ids, lengths)[:, 0].copy()
        for row, (more, length) in enumerate(zip(ids.tolist(), lengths.tolist(), strict=True)):
            history[row] += more[:length]
            alone = on_cpu.executor.start([sources[origins[row]]], 64)
            np.testing.assert_allclose(alone.step(np.array([history[row]]))[0, 0], found[row], atol=1e-4)
        chosen = rng.integers(0, len(origins), [2, 5, 16, 3, 4, 4, 4, 9, 1, 2, 2, 2][turn])
        if turn in (4, 5, 9):
            chosen = rng.permutation(len(origins))
        rows.select(chosen)
        origins, history = origins[chosen], [list(history[row]) for row in chosen]
        assert rows.cache_lengths.tolist() == [len(row) for row in history]
        if max(map(len, history)) > 26:
            break
    rows.close()
    rows.close()  # which gives nothing back twice


def test_positions_may_be_asked_for_in_any_number_and_order(on_gpu: Model, on_cpu: Model) -> None:
    """More of them than the profile takes, in a step of more tokens than it takes."""
    ids = np.random.default_rng(1).integers(3, 69, (2, 19))
    lengths = np.array([19, 11])
    at = np.array([[18, 0, 7, 8, 8, 3, 15, 16, 1, 2], [10, 9, 8, 7, 7, 0, 1, 2, 3, 4]])
    sources = [[5, 9, 2], [7, 2]]
    with on_gpu.session(sources) as one, on_cpu.session(sources) as other:
        np.testing.assert_allclose(one.step(ids, lengths, at), other.step(ids, lengths, at), atol=1e-4)
        assert one.cache_lengths.tolist() == [19, 11]
        np.testing.assert_allclose(one.step([[5], [6]]), other.step([[5], [6]]), atol=1e-4)
        np.testing.assert_allclose(one.step(ids[:, :2], [0, 2])[1], other.step(ids[:, :2], [0, 2])[1], atol=1e-4)


def test_sessions_in_several_threads_do_not_disturb_each_other(on_gpu: Model, words: list[str]) -> None:
    expected = [on_gpu.generate([word], BEAMS)[0].token_ids for word in words[:8]]
    found: dict[int, tuple[int, ...]] = {}

    def generate(i: int) -> None:
        found[i] = on_gpu.generate([words[i]], BEAMS)[0].token_ids

    threads = [threading.Thread(target=generate, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(8)] == expected


def test_earlier_calls_change_nothing(on_gpu: Model, words: list[str]) -> None:
    """Memory and graphs are used again, for other words."""
    first = on_gpu.generate(words[:8], N_BEST)
    on_gpu.generate(words[8:40], GREEDY)
    on_gpu.score(words[:8], [[30] * 9] * 8)
    same(on_gpu.generate(words[:8], N_BEST), first)
