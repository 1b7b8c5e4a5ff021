"""Weights in shards, in old pickles and behind links are read as those of one file are; what is wrong is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgeformer.models.checkpoint import load_checkpoint, save_checkpoint
from edgeformer.models.transformer import Transformer
from edgeformer.models.weight_files import PICKLED, WEIGHTS
from edgeformer.runtime.errors import CheckpointError

INPUTS = (torch.tensor([[3, 4, 5]]), torch.tensor([3]), torch.tensor([[1, 6]]))
SAFE = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
OLD = [f"pytorch_model-0000{i}-of-00003.bin" for i in (1, 2, 3)]


@pytest.fixture
def model(make_model: Callable[..., Transformer]) -> Transformer:
    return make_model().float()


@pytest.fixture
def folder(tmp_path: Path, model: Transformer) -> Path:
    """A checkpoint in one file."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_checkpoint(folder, model)
    return folder


def into_shards(folder: Path, names: list[str], save: Callable[[dict[str, Tensor], Path], None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    parts = [{name: tensors[name] for name in list(tensors)[i :: len(names)]} for i in range(len(names))]
    for file, part in zip(names, parts, strict=True):
        save(part, folder / file)
    weight_map = {name: file for file, part in zip(names, parts, strict=True) for name in part}
    index = f"{WEIGHTS if names == SAFE else PICKLED}.index.json"
    (folder / index).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


def sharded(folder: Path) -> Path:
    into_shards(folder, SAFE, save_file)
    return folder


def pickled(folder: Path) -> Path:
    torch.save(load_file(folder / WEIGHTS), folder / PICKLED)
    (folder / WEIGHTS).unlink()
    return folder


def pickled_in_shards(folder: Path) -> Path:
    into_shards(folder, OLD, torch.save)
    return folder


def as_a_hub_caches_it(folder: Path) -> Path:
    """Links in a snapshot to files that are named by their content."""
    sharded(folder)
    cache = folder.parent / "models--someone--some-model"
    snapshot = cache / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for i, path in enumerate(sorted(folder.iterdir())):
        shutil.move(path, cache / "blobs" / str(i))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(i))
    return snapshot


LAYOUTS = (sharded, pickled, pickled_in_shards, as_a_hub_caches_it)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_the_layout_of_files_changes_nothing(folder: Path, model: Transformer, layout: Callable[[Path], Path]) -> None:
    loaded = load_checkpoint(layout(folder))
    assert torch.equal(loaded(*INPUTS), model(*INPUTS))


def problems(folder: Path) -> tuple[str, ...]:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert str(folder) in str(caught.value)
    return caught.value.problems


@pytest.mark.parametrize(("layout", "names"), [(sharded, SAFE), (pickled_in_shards, OLD)], ids=["safe", "pickled"])
def test_every_shard_that_is_missing_is_named(folder: Path, layout: Callable[[Path], Path], names: list[str]) -> None:
    layout(folder)
    for name in names[1:]:
        (folder / name).unlink()
    assert problems(folder) == tuple(f"{name} is missing" for name in names[1:])


def test_a_link_to_a_shard_that_was_not_fetched_is_a_missing_shard(folder: Path) -> None:
    snapshot = as_a_hub_caches_it(folder)
    (snapshot / SAFE[1]).resolve().unlink()
    assert problems(snapshot) == (f"{SAFE[1]} is missing",)


def test_every_shard_that_is_damaged_is_named(folder: Path) -> None:
    sharded(folder)
    for name in SAFE[:2]:
        (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    found = problems(folder)
    assert [problem.partition(" cannot be read: ")[0] for problem in found] == SAFE[:2]


@pytest.mark.parametrize("layout", [sharded, pickled, pickled_in_shards], ids=lambda layout: layout.__name__)
def test_what_is_wrong_with_tensors_is_told_at_once_from_all_files(
    folder: Path, layout: Callable[[Path], Path]
) -> None:
    tensors: dict[str, Any] = load_file(folder / WEIGHTS)
    nan = torch.zeros(20)
    nan[7] = float("nan")
    tensors["decoder_layers.0.cross_attention.key.bias"] = nan
    tensors["embedding.weight"] = torch.zeros(29, 21)
    tensors["encoder_layers.0.attention.query.weight"] = torch.zeros(5)
    save_file(tensors, folder / WEIGHTS)
    assert sorted(problems(layout(folder))) == [
        "tensor decoder_layers.0.cross_attention.key.bias holds NaN or infinite values",
        "tensor embedding.weight is (29, 21), expected (29, 20)",
        "tensor encoder_layers.0.attention.query.weight is (5,), expected (20, 20)",
    ]


# The list of shards


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": []}', '{"weight_map": null}'])
def test_a_damaged_list_of_shards_is_named(folder: Path, content: str) -> None:
    sharded(folder)
    (folder / f"{WEIGHTS}.index.json").write_text(content)
    (problem,) = problems(folder)
    assert problem.startswith(f"{WEIGHTS}.index.json is damaged: ")


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", "a/b", 7])
def test_a_list_of_shards_does_not_lead_out_of_the_folder(folder: Path, shard: object) -> None:
    sharded(folder)
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": {"embedding.weight": shard}}))
    assert problems(folder) == (f"{WEIGHTS}.index.json names {shard!r}, which is no file here",)


# Pickles


class Runs:
    """What is pickled as a call that makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("layout", [pickled, pickled_in_shards], ids=lambda layout: layout.__name__)
def test_a_pickle_that_wants_to_run_code_is_refused_and_runs_none(folder: Path, layout: Callable[[Path], Path]) -> None:
    layout(folder)
    path = next(path for path in sorted(folder.iterdir()) if path.suffix == ".bin")
    ran = folder / "ran"
    torch.save({**torch.load(path, weights_only=True), "more": Runs(ran)}, path)
    (problem,) = problems(folder)
    assert problem.startswith(f"{path.name} holds more than tensors, and to run what a file holds is refused: ")
    assert not ran.exists()


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"a": 3}, torch.zeros(2)], ids=["list", "number", "tensor"])
def test_a_pickle_of_something_else_is_named(folder: Path, content: object) -> None:
    pickled(folder)
    torch.save(content, folder / PICKLED)
    assert problems(folder) == (f"{PICKLED} holds no table of tensors by name",)


@pytest.mark.parametrize("keep", [0, 3, 200, -40], ids=lambda keep: f"kept {keep}")
def test_a_truncated_pickle_is_named(folder: Path, keep: int) -> None:
    pickled(folder)
    (folder / PICKLED).write_bytes((folder / PICKLED).read_bytes()[:keep])
    (problem,) = problems(folder)
    assert problem.startswith(f"{PICKLED} ")
