"""A loaded model may be used from several threads at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.errors import OptionError

CONFIGS = [
    GenerationConfig(),
    GenerationConfig(num_beams=4, num_return_sequences=4, max_new_tokens=6),
    GenerationConfig(min_new_tokens=20),
]


def results(model: Model, words: list[str], config: GenerationConfig) -> list[list[tuple[int, ...]]]:
    return [[best.token_ids for best in generation.hypotheses] for generation in model.generate(words, config)]


def test_threads_that_generate_at_once_get_what_each_gets_alone(model: Model, words: list[str]) -> None:
    batches = [words[first : first + 5] for first in range(0, 20, 5)]
    jobs = [(batch, config) for batch in batches for config in CONFIGS]
    expected = [results(model, *job) for job in jobs]
    started = threading.Barrier(4)

    def work(offset: int) -> list[list[list[tuple[int, ...]]]]:
        started.wait()
        return [results(model, *job) for job in jobs[offset:] + jobs[:offset]]

    with ThreadPoolExecutor(4) as pool:
        offsets = [0, 0, 5, 8]
        for offset, found in zip(offsets, pool.map(work, offsets), strict=True):
            assert found == expected[offset:] + expected[:offset]


def test_threads_that_stream_and_score_at_once_get_what_each_gets_alone(model: Model, words: list[str]) -> None:
    def stream(word: str) -> str:
        return "".join(model.stream(word))

    def score(word: str) -> float:
        return model.score([word], ["W ER D"])[0].log_prob

    calls: list[Callable[[str], object]] = [stream, score]
    jobs = [(call, word) for word in words[:12] for call in calls]
    expected = [call(word) for call, word in jobs]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda job: job[0](job[1]), jobs)) == expected


@pytest.mark.parametrize("threads", [0, -1])
def test_fewer_than_one_thread_is_refused(tiny_bundle: Path, threads: int) -> None:
    with pytest.raises(OptionError, match=f"threads is {threads}, expected at least 1"):
        load(tiny_bundle, threads=threads)


@pytest.mark.parametrize(
    ("threads", "said"), [(1.5, "threads is 1.5, expected a whole number"), (10**6, "this machine has")]
)
def test_threads_that_this_machine_cannot_have_are_refused(tiny_bundle: Path, threads: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        load(tiny_bundle, threads=threads)


@pytest.mark.parametrize(
    ("spin", "entries"),
    [
        ("steps", {"session.force_spinning_stop": "1"}),
        ("always", {}),
        ("never", {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}),
    ],
)
def test_threads_wait_as_they_are_told(
    tiny_bundle: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, spin: Any, entries: dict[str, str]
) -> None:
    asked: dict[str, str] = {}
    add = onnxruntime.SessionOptions.add_session_config_entry

    def keep(options: onnxruntime.SessionOptions, name: str, value: str) -> None:
        asked[name] = value
        add(options, name, value)

    monkeypatch.setattr(onnxruntime.SessionOptions, "add_session_config_entry", keep)
    model = load(tiny_bundle, "ort-cpu-fp32", threads=1, spin=spin)
    assert asked == entries
    usual = load(tiny_bundle, "ort-cpu-fp32", threads=1)
    found, expected = ([result.hypotheses for result in each.generate(words[:2])] for each in (model, usual))
    assert found == expected


def test_another_way_to_wait_is_refused(tiny_bundle: Path) -> None:
    with pytest.raises(OptionError, match="spin is 'often', expected one of steps, always, never"):
        load(tiny_bundle, spin="often")  # type: ignore[arg-type]


def test_cores_that_this_process_may_not_use_are_not_taken(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    model = load(tiny_bundle, "ort-cpu-fp32")
    session = model.executor.decoder  # type: ignore[attr-defined]
    assert session.get_session_options().intra_op_num_threads == 1
    with pytest.raises(OptionError, match="threads is 2, of 8 cores this process may use 1: give at most 1"):
        load(tiny_bundle, "ort-cpu-fp32", threads=2)
