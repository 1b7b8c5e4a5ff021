"""A checkpoint folder gives the model that was saved, or says everything that is wrong with it."""

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
from edgeformer.models.weight_files import WEIGHTS
from edgeformer.runtime.errors import CheckpointError, ConfigError

MakeModel = Callable[..., Transformer]

INPUTS = (torch.tensor([[3, 4, 5]]), torch.tensor([3]), torch.tensor([[1, 6]]))


@pytest.fixture
def folder(tmp_path: Path, make_model: MakeModel) -> Path:
    """A checkpoint that is right."""
    save_checkpoint(tmp_path, make_model().float())
    return tmp_path


def problems(folder: Path) -> tuple[str, ...]:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert str(folder) in str(caught.value)
    return caught.value.problems


def rewrite(folder: Path, **changes: Tensor | None) -> None:
    """Change tensors of the file; None takes one out. Dots are written as `__`."""
    tensors: dict[str, Any] = {
        **load_file(folder / WEIGHTS),
        **{name.replace("__", "."): tensor for name, tensor in changes.items()},
    }
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / WEIGHTS)


# What comes back


@pytest.mark.parametrize(
    "variant", [{}, {"norm_placement": "pre", "positions": "learned", "activation": "gelu"}], ids=str
)
def test_a_float32_checkpoint_comes_back_bit_for_bit(
    tmp_path: Path, make_model: MakeModel, variant: dict[str, Any]
) -> None:
    model = make_model(**variant).float()
    save_checkpoint(tmp_path, model)
    loaded = load_checkpoint(tmp_path)
    assert loaded.config == model.config
    expected, actual = model.state_dict(), loaded.state_dict()
    assert expected.keys() == actual.keys()
    assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())
    assert torch.equal(loaded(*INPUTS), model(*INPUTS))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_half_precision_checkpoint_is_half_the_size_and_comes_back_rounded(
    tmp_path: Path, make_model: MakeModel, dtype: torch.dtype
) -> None:
    model = make_model().float()
    save_checkpoint(tmp_path, model, dtype)
    stored = load_file(tmp_path / WEIGHTS)
    assert {tensor.dtype for tensor in stored.values()} == {dtype}
    loaded = load_checkpoint(tmp_path).state_dict()
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    assert all(torch.equal(loaded[name], tensor.to(dtype).float()) for name, tensor in model.state_dict().items())


def test_it_is_loaded_for_inference(folder: Path) -> None:
    assert not load_checkpoint(folder).training


def test_saving_leaves_the_model_as_it_was(tmp_path: Path, make_model: MakeModel) -> None:
    model = make_model().float()
    before = model(*INPUTS)
    save_checkpoint(tmp_path, model, torch.float16)
    assert torch.equal(model(*INPUTS), before)


def test_the_file_holds_no_tensor_twice_and_no_sinusoids(folder: Path, make_model: MakeModel) -> None:
    stored = load_file(folder / WEIGHTS)
    assert stored.keys() == dict(make_model().named_parameters()).keys()


def test_a_folder_may_be_a_link_and_hold_links(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As the cache of a model hub does it: a folder of links to files that are named by their content."""
    elsewhere = tmp_path_factory.mktemp("links")
    snapshot = elsewhere / "snapshot"
    snapshot.mkdir()
    for name in ("config.json", WEIGHTS):
        (snapshot / name).symlink_to(folder / name)
    (elsewhere / "link").symlink_to(snapshot)
    assert torch.equal(load_checkpoint(elsewhere / "link")(*INPUTS), load_checkpoint(folder)(*INPUTS))


def test_other_files_beside_it_do_not_matter(folder: Path) -> None:
    (folder / "README.md").write_text("a model")
    (folder / "pytorch_model.bin").write_bytes(b"never opened")
    load_checkpoint(folder)


# What is missing or damaged


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path / "nowhere") == ("there is no such folder",)


def test_a_file_in_place_of_the_folder_is_named(folder: Path) -> None:
    assert problems(folder / "config.json") == ("there is no such folder",)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert problems(folder) == (f"{name} is missing",)


def test_all_missing_files_are_named(tmp_path: Path) -> None:
    assert problems(tmp_path) == ("config.json is missing", f"{WEIGHTS} is missing")


def test_a_link_to_nowhere_is_a_missing_file(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(folder / "blobs" / "gone")
    assert problems(folder) == (f"{WEIGHTS} is missing",)


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, -1], ids=lambda keep: f"kept {keep}")
def test_truncated_weights_are_named(folder: Path, keep: float) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: int(len(whole) * keep) if 0 < keep < 1 else int(keep)])
    (problem,) = problems(folder)
    assert problem.startswith(f"{WEIGHTS} cannot be read: ")


@pytest.mark.parametrize(
    "content", [b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", b"PK\x03\x04" * 99]
)
def test_weights_that_are_something_else_are_named(folder: Path, content: bytes) -> None:
    (folder / WEIGHTS).write_bytes(content)
    (problem,) = problems(folder)
    assert problem.startswith(f"{WEIGHTS} cannot be read: ")


def test_weights_that_are_a_folder_are_named(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()
    (problem,) = problems(folder)
    assert problem.startswith(f"{WEIGHTS} cannot be read: ")


def test_a_config_of_another_model_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "hopfield"}')
    with pytest.raises(ConfigError, match="model_type is 'hopfield'"):
        load_checkpoint(folder)


# Tensors


def test_every_tensor_that_does_not_fit_is_named_in_one_error(folder: Path) -> None:
    nan, infinite = torch.zeros(20), torch.zeros(24)
    nan[3], infinite[0] = float("nan"), float("inf")
    rewrite(
        folder,
        embedding__weight=torch.zeros(29, 21),
        encoder_layers__0__attention__query__weight=None,
        decoder_layers__2__feed_forward_residual__norm__bias=None,
        decoder_layers__3__attention__query__weight=torch.zeros(20, 20),
        lm_head__weight=torch.zeros(29, 20),
        decoder_layers__0__cross_attention__key__bias=nan,
        decoder_layers__1__feed_forward__inner__bias=infinite,
    )
    assert sorted(problems(folder)) == [
        "tensor decoder_layers.0.cross_attention.key.bias holds NaN or infinite values",
        "tensor decoder_layers.1.feed_forward.inner.bias holds NaN or infinite values",
        "tensor decoder_layers.2.feed_forward_residual.norm.bias is missing",
        "tensor decoder_layers.3.attention.query.weight is unknown to this model",
        "tensor embedding.weight is (29, 21), expected (29, 20)",
        "tensor encoder_layers.0.attention.query.weight is missing",
        "tensor lm_head.weight is unknown to this model",
    ]


def test_weights_of_a_larger_model_do_not_pass_for_a_smaller_one(folder: Path) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "num_decoder_layers": 2, "vocab_size": 30}))
    found = problems(folder)
    assert "tensor embedding.weight is (29, 20), expected (30, 20)" in found
    assert sum("is unknown to this model" in problem for problem in found) == 26  # one decoder layer's tensors


def test_a_scalar_does_not_stand_in_for_a_bias(folder: Path) -> None:
    rewrite(folder, encoder_layers__0__attention__query__bias=torch.zeros(1))
    assert problems(folder) == ("tensor encoder_layers.0.attention.query.bias is (1,), expected (20,)",)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn], ids=str)
def test_quantized_weights_are_not_taken_for_numbers(folder: Path, dtype: torch.dtype) -> None:
    rewrite(folder, embedding__weight=torch.ones(29, 20).to(dtype))
    (problem,) = problems(folder)
    assert problem.startswith(f"tensor embedding.weight is {dtype}, expected ")


def test_weights_too_large_for_half_precision_are_refused_before_anything_is_written(
    tmp_path: Path, make_model: MakeModel
) -> None:
    model = make_model().float()
    with torch.no_grad():
        model.embedding.weight[0, 0] = 1e5
    with pytest.raises(CheckpointError, match=r"embedding\.weight holds NaN or infinite values"):
        save_checkpoint(tmp_path, model, torch.float16)
    assert list(tmp_path.iterdir()) == []
    save_checkpoint(tmp_path, model)


def test_nothing_in_a_checkpoint_is_executed(folder: Path) -> None:
    """A pickle under the name of the weights is refused, not loaded."""
    torch.save({"embedding.weight": torch.zeros(1)}, folder / "pickle")
    shutil.move(folder / "pickle", folder / WEIGHTS)
    (problem,) = problems(folder)
    assert problem.startswith(f"{WEIGHTS} cannot be read: ")
