"""What is free on a GPU: its own memory, or what it shares with the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeformer.runtime import machine_memory
from edgeformer.runtime.bundle import Artifact, read_manifest

from .conftest import Machine
from .fake_cuda import Result


@pytest.fixture
def artifact(engine_bundle: Path) -> Artifact:
    return read_manifest(engine_bundle).artifacts[-1]


def test_a_gpu_with_memory_of_its_own_is_asked(machine: Machine, artifact: Artifact) -> None:
    machine.cuda.memory = 12_345_678
    assert machine_memory.free_memory(artifact) == machine_memory.Free(12_345_678, "GPU memory of NVIDIA Pretence 4000")


def test_a_jetson_has_what_the_kernel_can_give(
    machine: Machine, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.cuda.integrated = True
    monkeypatch.setattr(machine_memory, "available_memory", lambda: 777)
    assert machine_memory.free_memory(artifact) == machine_memory.Free(777, "memory that CPU and GPU share")


def test_without_a_gpu_nobody_knows(machine: Machine, artifact: Artifact) -> None:
    machine.cuda.init = Result.CUDA_ERROR_NO_DEVICE
    assert machine_memory.free_memory(artifact) is None
