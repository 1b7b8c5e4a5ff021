"""What differs from PyTorch is noticed, and named: parity decides, not hope."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.parity import TOLERANCES, Check, check_golden, require
from edgeformer.exporter.targets import TARGETS
from edgeformer.runtime import Model, Score, load
from edgeformer.runtime.bundle import GoldenSample
from edgeformer.runtime.errors import ParityError

NAMES = [
    "greedy equals PyTorch",
    "beam 4 equals PyTorch",
    "log-probabilities equal PyTorch's",
    "a ragged batch equals its rows, greedy",
    "a ragged batch equals its rows, beam 4",
    "a cache changes nothing",
]


@pytest.fixture(scope="module")
def loaded(tiny_bundle: Path) -> dict[str, Model]:
    return {name: load(tiny_bundle, name, threads=1) for name in ("ort-cpu-fp32", "ort-cpu-int8")}


def failed(model: Model, samples: tuple[GoldenSample, ...]) -> list[str]:
    return [check.name for check in check_golden(model, samples) if not check.passed]


def changed(
    samples: tuple[GoldenSample, ...], change: Callable[[GoldenSample], GoldenSample]
) -> tuple[GoldenSample, ...]:
    """The samples, the last of them changed."""
    return (*samples[:-1], change(samples[-1]))


@pytest.mark.parametrize("name", ["ort-cpu-fp32", "ort-cpu-int8"])
def test_an_artifact_that_is_right_passes_every_check(loaded: dict[str, Model], name: str) -> None:
    model = loaded[name]
    checks = check_golden(model, model.bundle.manifest.golden)
    assert [check.name for check in checks] == NAMES
    assert [check.name for check in checks if not check.passed] == []
    assert all(check.detail for check in checks)
    require(checks, "it")


def test_one_other_token_is_noticed(loaded: dict[str, Model]) -> None:
    golden = loaded["ort-cpu-fp32"].bundle.manifest.golden
    longer = changed(golden, lambda sample: dataclasses.replace(sample, greedy=(*sample.greedy, 40)))
    assert "greedy equals PyTorch" in failed(loaded["ort-cpu-fp32"], longer)
    other = changed(golden, lambda sample: dataclasses.replace(sample, beam=sample.beam[:-1]))
    assert failed(loaded["ort-cpu-fp32"], other) == ["beam 4 equals PyTorch"]


def test_rounded_weights_may_say_another_token(loaded: dict[str, Model]) -> None:
    golden = loaded["ort-cpu-int8"].bundle.manifest.golden
    other = changed(golden, lambda sample: dataclasses.replace(sample, beam=sample.beam[:-1]))
    assert failed(loaded["ort-cpu-int8"], other) == []


@pytest.mark.parametrize(("name", "off"), [("ort-cpu-fp32", 3e-3), ("ort-cpu-int8", 6.0)])
def test_a_log_probability_that_is_off_is_noticed(loaded: dict[str, Model], name: str, off: float) -> None:
    golden = loaded[name].bundle.manifest.golden
    other = changed(golden, lambda sample: dataclasses.replace(sample, greedy_score=sample.greedy_score - off))
    assert failed(loaded[name], other) == ["log-probabilities equal PyTorch's"]


@pytest.mark.parametrize("name", ["ort-cpu-fp32", "ort-cpu-int8"])
def test_what_is_no_number_is_noticed(loaded: dict[str, Model], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As an artifact in 16 bits gives where something overflows."""
    model, score = loaded[name], Model.score

    def overflown(self: Model, *arguments: Any) -> list[Score]:
        scores = score(self, *arguments)
        broken = (float("nan"), *scores[-1].token_log_probs[1:])
        return [*scores[:-1], dataclasses.replace(scores[-1], token_log_probs=broken)]

    monkeypatch.setattr(Model, "score", overflown)
    assert failed(model, model.bundle.manifest.golden) == [NAMES[2], NAMES[5]]


def test_a_row_that_depends_on_its_neighbours_is_noticed(
    loaded: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded["ort-cpu-fp32"]
    generate = model.generate_batch

    def mixed(sources: list[list[int]], *arguments: object) -> object:
        found = generate(sources, *arguments)  # type: ignore[arg-type]
        return found if len(sources) == 1 else found[::-1]

    monkeypatch.setattr(model, "generate_batch", mixed)
    assert failed(model, model.bundle.manifest.golden) == NAMES[3:5]


def test_every_check_that_failed_is_named() -> None:
    checks = [Check("one", False, "3 of 4"), Check("two", True, "fine"), Check("three", False, "1e-2 a token")]
    with pytest.raises(ParityError) as caught:
        require(checks, "the export of x")
    assert str(caught.value) == "the export of x does not give what PyTorch gives: one: 3 of 4; three: 1e-2 a token"
    require([checks[1]], "it")


def test_every_precision_of_a_target_has_a_tolerance() -> None:
    assert {precision for target in TARGETS.values() for precision in target.precisions} <= set(TOLERANCES)
