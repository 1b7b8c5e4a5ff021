"""From a checkpoint to a bundle that gives what PyTorch gives, or to a clear error and nothing written."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from safetensors.torch import load_file, save_file

from edgeformer.exporter import exporting, onnx_graphs
from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.runtime import GenerationConfig, load
from edgeformer.runtime.backends import lacking
from edgeformer.runtime.bundle import open_bundle, read_manifest
from edgeformer.runtime.errors import (
    CheckpointError,
    ConfigError,
    EdgeformerError,
    OutputExistsError,
    ParityError,
    WriteError,
)

from .graphs import only, read

Tree = dict[str, bytes]


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint to change."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture
def graphs(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, ir.Model]:
    """What torch.onnx.export will be said to have given: the tiny bundle's graphs, without the seconds that it takes.

    The golden samples are those of the tiny bundle as well: they are PyTorch's, as a test below says.
    """
    if reason := lacking(read_manifest(tiny_bundle).artifacts[0]):
        pytest.skip(reason)  # as for Python 3.10: the export cannot be verified there
    ready = {role: read(tiny_bundle, role) for role in ("encoder", "decoder")}
    golden = read_manifest(tiny_bundle).golden
    monkeypatch.setattr(exporting, "golden_samples", lambda model, sources: golden)
    monkeypatch.setattr(onnx_graphs, "export_encoder", lambda model: ready["encoder"])
    monkeypatch.setattr(onnx_graphs, "export_step", lambda model: ready["decoder"])
    return ready


def tree(folder: Path) -> Tree:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(checkpoint: Path, place: Path, kind: type[EdgeformerError], **options: Any) -> str:
    """An error of this kind, and the place as it was."""
    before = tree(place)
    with pytest.raises(kind) as caught:
        export_checkpoint(checkpoint, place / "bundle", **options)
    assert tree(place) == before
    assert [path.name for path in place.iterdir()] in ([], ["bundle"])
    return str(caught.value)


# A bundle


def test_a_bundle_holds_the_checkpoints_own_files_as_they_came(tiny_checkpoint: Path, tiny_bundle: Path) -> None:
    for name in ("config.json", "tokenizer.json", "target_tokenizer.json"):
        assert (tiny_bundle / name).read_bytes() == (tiny_checkpoint / name).read_bytes()
    assert not list(tiny_bundle.rglob("*.safetensors"))


def test_its_golden_samples_are_pytorchs(tiny_checkpoint: Path, tiny_bundle: Path) -> None:
    from edgeformer.exporter import reference
    from edgeformer.models.checkpoint import load_checkpoint

    model = load_checkpoint(tiny_checkpoint)
    for sample in open_bundle(tiny_bundle).manifest.golden:
        (greedy,) = reference.greedy(model, [sample.source_ids], sample.max_new_tokens)
        assert list(sample.greedy) == greedy
        beam, score = reference.beam_search(model, sample.source_ids, sample.max_new_tokens, 4)[0]
        assert list(sample.beam) == beam
        assert sample.beam_score == pytest.approx(score, abs=1e-5)


def test_all_the_work_is_announced_and_every_check_reported(
    tiny_checkpoint: Path, place: Path, graphs: dict[str, ir.Model]
) -> None:
    steps: list[str] = []
    checks: list[Any] = []
    manifest = export_checkpoint(tiny_checkpoint, place / "bundle", progress=steps.append, on_checks=checks.extend)
    assert steps[0] == "reading the checkpoint"
    assert steps[-1] == "verifying against PyTorch"
    assert len(steps) == len(set(steps)) >= 6
    assert len(checks) == 6
    assert all(check.passed for check in checks)
    assert open_bundle(place / "bundle").manifest == manifest


def test_a_checkpoints_options_come_along(checkpoint: Path, place: Path, graphs: dict[str, ir.Model]) -> None:
    (checkpoint / "generation_config.json").write_text('{"num_beams": 3, "max_new_tokens": 5}')
    export_checkpoint(checkpoint, place / "bundle")
    assert load(place / "bundle").generation_config == GenerationConfig(num_beams=3, max_new_tokens=5)


def test_one_tokenizer_may_serve_both_sides(checkpoint: Path, place: Path, graphs: dict[str, ir.Model]) -> None:
    (checkpoint / "target_tokenizer.json").unlink()
    export_checkpoint(checkpoint, place / "bundle")
    model = load(place / "bundle")
    assert model.text.target is model.text.source


def test_an_earlier_bundle_is_replaced_whole_where_that_is_asked_for(
    tiny_checkpoint: Path, tiny_bundle: Path, place: Path, graphs: dict[str, ir.Model]
) -> None:
    shutil.copytree(tiny_bundle, place / "bundle")
    assert "holds a bundle already" in refused(tiny_checkpoint, place, OutputExistsError)
    export_checkpoint(tiny_checkpoint, place / "bundle", overwrite=True)
    assert [artifact.name for artifact in open_bundle(place / "bundle").manifest.artifacts] == ["onnx"]
    assert not (place / "bundle" / "ort-cpu-int8").exists()


# Parity


def change_a_weight(graphs: dict[str, ir.Model]) -> None:
    """One of the encoder's matrices, by a few percent."""
    values = [value for value in graphs["encoder"].graph.initializers.values() if value.shape == (32, 64)]
    tensor = values[0].const_value
    assert tensor is not None
    values[0].const_value = ir.tensor((tensor.numpy() * 1.05).astype(np.float32), name=values[0].name)


def see_the_future(graphs: dict[str, ir.Model]) -> None:
    """Queries see what comes after them, which is nothing yet, instead of what came before."""
    (compare,) = only(graphs["decoder"], "LessOrEqual")
    left, right = compare.inputs
    compare.replace_input_with(0, right)
    compare.replace_input_with(1, left)


@pytest.mark.parametrize("mistake", [change_a_weight, see_the_future], ids=lambda mistake: mistake.__name__)
@pytest.mark.parametrize("earlier", [False, True], ids=["new", "over a bundle"])
def test_an_export_that_computes_something_else_is_refused(
    tiny_checkpoint: Path,
    tiny_bundle: Path,
    place: Path,
    graphs: dict[str, ir.Model],
    mistake: Callable[[dict[str, ir.Model]], None],
    earlier: bool,
) -> None:
    if earlier:
        shutil.copytree(tiny_bundle, place / "bundle")
    mistake(graphs)
    message = refused(tiny_checkpoint, place, ParityError, overwrite=True)
    assert message.startswith(f"the export of {tiny_checkpoint} does not give what PyTorch gives: ")
    assert "log-probabilities equal PyTorch's: largest difference" in message


# What cannot be exported, or written


def test_a_place_that_is_taken_is_refused_before_any_work(tiny_checkpoint: Path, place: Path) -> None:
    (place / "bundle").mkdir()
    (place / "bundle" / "photo.jpg").write_text("precious")
    steps: list[str] = []
    assert "is not a bundle" in refused(tiny_checkpoint, place, OutputExistsError, progress=steps.append)
    assert steps == []


def test_a_missing_checkpoint_is_refused(place: Path) -> None:
    assert "there is no such folder" in refused(place.with_name("nowhere"), place, CheckpointError)


def test_weights_that_are_not_numbers_are_refused(checkpoint: Path, place: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["embedding.weight"][3, 3] = float("nan")
    save_file(tensors, checkpoint / "model.safetensors")
    assert "tensor embedding.weight holds NaN or infinite values" in refused(checkpoint, place, CheckpointError)


def test_a_config_that_is_not_of_these_weights_is_refused(checkpoint: Path, place: Path) -> None:
    values = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**values, "vocab_size": 70}))
    assert "tensor embedding.weight is (69, 32), expected (70, 32)" in refused(checkpoint, place, CheckpointError)
    (checkpoint / "config.json").write_text(json.dumps({**values, "rope_theta": 1e4}))
    assert "key 'rope_theta' is not understood" in refused(checkpoint, place, ConfigError)


def test_tokenizers_that_know_more_than_the_model_are_refused_together(checkpoint: Path, place: Path) -> None:
    for name in ("tokenizer.json", "target_tokenizer.json"):
        values = json.loads((checkpoint / name).read_text())
        values["model"]["vocab"][f"one more in {name}"] = 69
        (checkpoint / name).write_text(json.dumps(values))
    message = refused(checkpoint, place, CheckpointError)
    for name in ("tokenizer.json", "target_tokenizer.json"):
        assert (
            f"{name} has ids up to 69, the model's vocab_size is 69: 1 tokens, such as 'one more in {name}'" in message
        )


def test_everything_that_is_wrong_beside_the_weights_is_named_at_once(checkpoint: Path, place: Path) -> None:
    (checkpoint / "tokenizer.json").write_text("[]")
    (checkpoint / "target_tokenizer.json").write_text("{}")
    (checkpoint / "generation_config.json").write_text("{")
    message = refused(checkpoint, place, CheckpointError)
    for part in (
        " tokenizer.json is not a tokenizer",
        "target_tokenizer.json is not a tokenizer",
        "generation_config.json is not JSON",
    ):
        assert part in message


def test_a_missing_tokenizer_is_told_with_the_files_that_would_do(checkpoint: Path, place: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    message = refused(checkpoint, place, CheckpointError)
    assert "it has no tokenizer: looked for tokenizer.json; source.spm + target.spm + vocab.json; " in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"typical_p": 0.7}', "not supported: typical_p=0.7"),
        ('{"num_beams": 0}', "num_beams is 0"),
        ("[]", "object"),
    ],
)
def test_options_that_the_runtime_would_refuse_are_refused_before_any_work(
    checkpoint: Path, place: Path, graphs: dict[str, ir.Model], content: str, reason: str
) -> None:
    (checkpoint / "generation_config.json").write_text(content)
    steps: list[str] = []
    assert reason in refused(checkpoint, place, CheckpointError, progress=steps.append)
    assert steps == ["reading the checkpoint"]


@pytest.mark.parametrize("part", ["save_graphs", "describe"])
def test_a_full_disk_is_one_clear_error(
    tiny_checkpoint: Path,
    tiny_bundle: Path,
    place: Path,
    graphs: dict[str, ir.Model],
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    def full(folder: Path, *arguments: object) -> None:
        (folder / "half").write_text("written")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    shutil.copytree(tiny_bundle, place / "bundle")
    monkeypatch.setattr(exporting, part, full)
    message = refused(tiny_checkpoint, place, WriteError, overwrite=True)
    assert message.startswith(f"writing {place / 'bundle'} failed: No space left on device: ")


def test_ctrl_c_leaves_what_was_there(
    tiny_checkpoint: Path,
    tiny_bundle: Path,
    place: Path,
    graphs: dict[str, ir.Model],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    shutil.copytree(tiny_bundle, place / "bundle")
    before = tree(place)
    monkeypatch.setattr(exporting, "describe", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export_checkpoint(tiny_checkpoint, place / "bundle", overwrite=True)
    assert tree(place) == before
