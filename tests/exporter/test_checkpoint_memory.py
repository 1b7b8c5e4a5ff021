"""A checkpoint that this machine cannot hold is refused before its weights are read, with the numbers."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from edgeformer.exporter import checkpoint_memory
from edgeformer.exporter.checkpoint_memory import count_weights, require_memory
from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.runtime.errors import CheckpointError, NotEnoughMemoryError

MACHINE = 24_000_000_000


@pytest.fixture
def checkpoint(tmp_path: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(checkpoint_memory, "available_memory", lambda: MACHINE)
    return shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")


def sparse_safetensors(path: Path, numbers: int, name: str = "embedding.weight") -> None:
    """A file that claims so many float16 numbers, and takes no room on the disk."""
    tensor = {"dtype": "F16", "shape": [numbers // 1000, 1000], "data_offsets": [0, 2 * numbers]}
    header = json.dumps({name: tensor}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with path.open("r+b") as file:
        file.truncate(8 + len(header) + 2 * numbers)


def sparse_shards(folder: Path, numbers: int) -> None:
    (folder / "model.safetensors").unlink()
    names = [f"model-{i}.safetensors" for i in range(4)]
    for i, name in enumerate(names):
        sparse_safetensors(folder / name, numbers // 4, f"embedding.{i}")
    weight_map = {f"embedding.{i}": name for i, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def sparse_pickle(folder: Path, numbers: int) -> None:
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        file.truncate(2 * numbers)


def refused(checkpoint: Path, place: Path) -> str:
    steps: list[str] = []
    with pytest.raises(NotEnoughMemoryError) as caught:
        export_checkpoint(checkpoint, place, progress=steps.append)
    assert steps == ["reading the checkpoint"]
    assert not place.exists()
    return str(caught.value)


def test_forty_gigabytes_are_refused_on_a_machine_of_24(checkpoint: Path, tmp_path: Path) -> None:
    sparse_safetensors(checkpoint / "model.safetensors", 20_000_000_000)
    message = refused(checkpoint, tmp_path / "bundle")
    assert message.startswith(f"the export of {checkpoint} needs 160.0 GB of memory, for 20.00 billion weights")
    assert "24.0 GB are available" in message


def test_shards_are_counted_together(checkpoint: Path, tmp_path: Path) -> None:
    sparse_shards(checkpoint, 4_000_000_000)
    assert "needs 32.0 GB of memory, for 4.00 billion weights" in refused(checkpoint, tmp_path / "bundle")


def test_pickles_are_told_by_their_size_and_not_opened(checkpoint: Path, tmp_path: Path) -> None:
    sparse_pickle(checkpoint, 3_000_000_000)
    assert "needs 30.0 GB of memory, for 3.00 billion weights" in refused(checkpoint, tmp_path / "bundle")


def test_what_fits_is_not_refused(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = count_weights(checkpoint) * checkpoint_memory.BYTES_EACH
    for available in (needed, None):
        monkeypatch.setattr(checkpoint_memory, "available_memory", lambda available=available: available)
        require_memory(checkpoint)
    monkeypatch.setattr(checkpoint_memory, "available_memory", lambda: needed - 1)
    with pytest.raises(NotEnoughMemoryError):
        require_memory(checkpoint)


def test_a_shard_that_is_missing_comes_first(checkpoint: Path, tmp_path: Path) -> None:
    sparse_shards(checkpoint, 4_000_000_000)
    (checkpoint / "model-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-2\.safetensors is missing"):
        export_checkpoint(checkpoint, tmp_path / "bundle")
