"""`make gpu-check` measures engines, here those of the stand-ins."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgeformer.runtime import Model
from edgeformer.runtime.backends.tensorrt import driver

from .conftest import Machine

sys.path.insert(0, str(Path(__file__).parents[4] / "benchmarks"))


@pytest.mark.parametrize("captures", [True, False])
def test_an_engine_is_compared_and_its_memory_and_notes_are_told(
    machine: Machine, engine_bundle: Path, on_cpu: Model, captures: bool
) -> None:
    import gpu_check

    machine.cuda.refuse_capture = not captures
    words = ["word", "other", "a"]
    expected = [gpu_check.tokens(on_cpu, words, config) for config in (gpu_check.GREEDY, gpu_check.BEAMS)]
    expected[1][0] = (0,)  # one that differs
    outcome = gpu_check.measured(engine_bundle, "engines", words, expected, driver.open_device(), rounds=1)
    assert (outcome.words, outcome.same_greedy, outcome.same_beam) == (3, 3, 2)
    assert outcome.gpu_bytes
    assert set(outcome.words_per_second) == {1, 64}
    assert [note.startswith("decoding goes on without CUDA graphs") for note in outcome.notes] == [True] * (
        not captures
    )
