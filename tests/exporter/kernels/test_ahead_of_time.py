"""The plugins whose kernels the engine carries, driven through NVIDIA's own `tensorrt.plugin`."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.kernels.ahead_of_time import renamed, without_scratch
from edgeformer.runtime.plugins.kernels import SOURCE, Kernel, write_index

pytest.importorskip("tensorrt_lean")


@pytest.fixture(scope="module")
def told(compiled: tuple[Path, list[Kernel]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What TensorRT hears of three calls; the source's kernels stand in with the cache's code."""
    folder, kernels = compiled
    stand_ins = [
        dataclasses.replace(kernel, variant=dataclasses.replace(kernel.variant, operator=SOURCE)) for kernel in kernels
    ]
    both = tmp_path_factory.mktemp("kernels")
    for kernel in kernels:
        (both / kernel.file).write_bytes((folder / kernel.file).read_bytes())
    write_index(both, [*kernels, *stand_ins], {})
    program = [sys.executable, Path(__file__).with_name("ahead_of_time.py"), both]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_outputs_have_their_shapes_and_caches_alias_their_inputs(told: dict[str, Any]) -> None:
    assert told["cached"]["shapes"] == [[3, 4, 9, 64], [3, 2, 40, 64], [3, 2, 40, 64]]
    assert told["cached"]["aliases"] == [-1, 3, 4]
    assert told["source"]["shapes"] == [[3, 4, 9, 64]]
    assert told["source"]["aliases"] == [-1]


def test_activations_share_a_type_and_lengths_are_int32(told: dict[str, Any]) -> None:
    assert told["cached"]["types"] == ["HALF"] * 5 + ["INT32"] + ["HALF"] * 3
    assert told["source"]["types"] == ["HALF"] * 3 + ["INT32", "HALF"]


def test_the_builder_times_two_tactics_with_tiles_of_their_own(told: dict[str, Any]) -> None:
    assert told["cached"]["tactics"] == [1, 2]
    # 9 queries of 2 heads each that share keys: 18 rows, in tiles of 64 or of 16; 3 rows of 2 such heads.
    assert told["cached"]["launch"] == {
        "grid_x": 1, "grid_y": 6, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1, "shared_mem": 16384,
    }  # fmt: skip
    assert told["short"]["launch"]["grid_x"] == 2


def test_numbers_between_inputs_and_outputs_are_the_querys_length_and_the_capacity(told: dict[str, Any]) -> None:
    assert [told[call]["extra"] for call in ("cached", "source")] == [[9, 40], [9, 40]]


def test_the_kernel_takes_inputs_numbers_and_outputs_and_no_more(
    told: dict[str, Any], compiled: tuple[Path, list[Kernel]]
) -> None:
    folder, kernels = compiled
    assert told["cached"]["ptx"].count("\t.param ") == 6 + 2 + 3
    assert f".entry {told['cached']['entry']}(" in told["cached"]["ptx"]
    code = (folder / kernels[3].file).read_text()
    assert told["cached"]["ptx"] == renamed(without_scratch(code, "attention"), "attention", told["cached"]["entry"])
    assert told["short"]["entry"] != told["cached"]["entry"]
