"""Prompts at their times: how they are read, served, and told of."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeformer.cli.benching.grid import Cell
from edgeformer.cli.benching.replay import Request, read_requests, serve, summarize_replay
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.errors import InputError

from .paced import Paced

CONFIG = GenerationConfig(min_new_tokens=4, max_new_tokens=4)


def steady() -> Paced:
    """Takes 1.1 seconds a step for one input, 1.2 for two, and as long for the first."""
    return Paced(1.0, 0, spread=0.0, first=1.0)


def test_a_request_that_comes_to_a_free_model_does_not_wait() -> None:
    model = steady()
    first, second = serve(model, [Request(1, "a"), Request(100, "b")], Cell(4, None, CONFIG), *clocks(model))
    assert (first.waited, second.waited) == (0, 0)
    assert first.call.first == pytest.approx(1.1)
    assert first.call.seconds == pytest.approx(4.4)
    assert [len(batch) for batch in model.batches] == [1, 1]


def test_requests_that_wait_are_taken_together_and_their_waiting_counts() -> None:
    model = steady()
    requests = [Request(0, "a"), Request(1, "b"), Request(2, "c"), Request(3, "d")]
    served = serve(model, requests, Cell(2, None, CONFIG), *clocks(model))
    assert model.batches == [["a"], ["b", "c"], ["d"]]  # no more than two at a time, in their order
    assert [one.waited for one in served] == pytest.approx([0, 3.4, 2.4, 4.4 + 4.8 - 3])
    assert served[1].call.first == pytest.approx(3.4 + 1.2)
    assert served[1].call.seconds == pytest.approx(3.4 + 4.8)
    found = summarize_replay(Cell(2, None, CONFIG), served, 0.0)
    assert found["tokens_per_second"]["value"] == pytest.approx(16 / (4.4 + 4.8 + 4.4))
    assert found["waiting_ms"]["p50"]["value"] == pytest.approx(2400)
    assert found["samples"]["tokens"] == [4, 4, 4, 4]


def clocks(model: Paced) -> tuple[object, ...]:
    return (lambda done: None), model.clock, model.sleep


def test_a_file_is_read_by_its_times(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"at": 2, "text": "late"}\n\n{"at": 0.5, "text": "early"}\n')
    assert read_requests(path) == [Request(0.5, "early"), Request(2, "late")]


def test_every_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    wrong = [
        '{"at": 0',
        '{"at": -1, "text": "a"}',
        '{"at": true, "text": "a"}',
        '{"at": 1, "text": " "}',
        '{"at": 1}',
        "[]",
    ]
    path.write_text("\n".join(['{"at": 0, "text": "a"}', *wrong]))
    with pytest.raises(InputError) as error:
        read_requests(path)
    message = str(error.value)
    assert [f"line {number}:" in message for number in range(1, 8)] == [False, *[True] * 6]
    for part in ("not JSON", "at is -1", "at is True", "text is ' '", "expected an object"):
        assert part in message


@pytest.mark.parametrize(("content", "reason"), [(b"", "is empty"), (b"\xff", "cannot be read")])
def test_a_file_without_requests_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason):
        read_requests(path)
