"""Memory that cannot be had is one line about what was asked for; other errors stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.errors import NotEnoughMemoryError

FULL = MemoryError("Unable to allocate 3.1 GiB")
OF_ONNX_RUNTIME = RuntimeError("Failed to allocate memory for requested buffer of size 123")


@pytest.fixture
def model(tiny_bundle: Path) -> Model:
    return load(tiny_bundle, "ort-cpu-fp32", threads=1)


def failing(error: Exception) -> Callable[..., Any]:
    def start(*arguments: Any) -> Any:
        raise error

    return start


@pytest.mark.parametrize("error", [FULL, OF_ONNX_RUNTIME])
def test_a_batch_that_does_not_fit_is_told_with_what_to_do(
    model: Model, words: list[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(model.executor, "start", failing(error))
    with pytest.raises(NotEnoughMemoryError) as caught:
        model.generate(words[:3], GenerationConfig(num_beams=2))
    assert str(caught.value) == (
        f"3 inputs together do not fit into the memory that is free ({error}): "
        "give a smaller batch_size, fewer beams or fewer new tokens"
    )
    with pytest.raises(NotEnoughMemoryError, match="one input does not fit into the memory that is free"):
        model.score(words[:1], ["AA"])


def test_another_error_stays_what_it_is(model: Model, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.executor, "start", failing(RuntimeError("a kernel failed")))
    with pytest.raises(RuntimeError, match="^a kernel failed$"):
        model.generate(words[:1])


def test_caches_that_cannot_grow_are_told_and_the_model_goes_on(
    model: Model, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [one.hypotheses for one in model.generate(words[:2])]
    with monkeypatch.context() as patch:
        patch.setattr("edgeformer.runtime.backends.onnxruntime_cpu.np.zeros", failing(FULL))
        patch.setattr("edgeformer.runtime.backends.onnxruntime_cpu.np.empty", failing(FULL))
        with pytest.raises(NotEnoughMemoryError):
            load(model.bundle.folder, "ort-cpu-fp32", threads=1).generate(words[:2])
    assert [one.hypotheses for one in model.generate(words[:2])] == expected
