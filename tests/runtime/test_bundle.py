"""A bundle can be copied, moved and checked, and one that is damaged says everything that is wrong with it at once."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import load
from edgeformer.runtime.backends import older
from edgeformer.runtime.bundle import MANIFEST, SCHEMA_VERSION, Bundle, FileRecord, Manifest, open_bundle, read_manifest
from edgeformer.runtime.errors import BundleError

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A bundle to damage."""
    return shutil.copytree(tiny_bundle, tmp_path / "place" / "bundle")


def edit(bundle: Path, change: Edit) -> None:
    """Change bundle.json."""
    values = json.loads((bundle / "bundle.json").read_text())
    change(values)
    (bundle / "bundle.json").write_text(json.dumps(values))


def problems(folder: Path, **options: Any) -> list[str]:
    """What is wrong, without the advice in the end; loading says the same."""
    with pytest.raises(BundleError) as caught:
        open_bundle(folder, **options)
    assert str(caught.value).startswith(f"bundle {folder}: ")
    with pytest.raises(BundleError):
        load(folder)
    return [problem for problem in caught.value.problems if problem != "copy the bundle again, or export it anew"]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


# What is whole


def test_a_whole_bundle_opens(tiny_bundle: Path) -> None:
    bundle = open_bundle(tiny_bundle)
    manifest = bundle.manifest
    assert [artifact.name for artifact in manifest.artifacts] == ["onnx", "ort-cpu-fp32", "ort-cpu-int8"]
    assert set(manifest.files) == {"config.json", "tokenizer.json", "target_tokenizer.json"}
    assert bundle.artifact("onnx") is manifest.artifacts[0]
    assert bundle.artifact("nothing") is None
    assert (manifest.sizes.vocab_size, manifest.sizes.head_dim, manifest.sizes.max_positions) == (69, 16, 32)
    assert (manifest.tokens.pad, manifest.tokens.start, manifest.tokens.ends) == (0, 1, (2,))


def test_every_file_in_the_folder_is_recorded_once(tiny_bundle: Path) -> None:
    manifest = read_manifest(tiny_bundle)
    recorded = [*manifest.files, *(name for artifact in manifest.artifacts for name in artifact.files)]
    on_disk = [path.relative_to(tiny_bundle).as_posix() for path in tiny_bundle.rglob("*") if path.is_file()]
    assert sorted([*recorded, "bundle.json"]) == sorted(on_disk)
    for name, record in {**manifest.files, **manifest.artifacts[0].files}.items():
        content = (tiny_bundle / name).read_bytes()
        assert record == FileRecord(len(content), hashlib.sha256(content).hexdigest())


def test_a_manifest_is_read_as_it_was_written(tiny_bundle: Path) -> None:
    text = (tiny_bundle / "bundle.json").read_text()
    manifest = read_manifest(tiny_bundle)
    assert isinstance(manifest, Manifest)
    assert manifest.to_json() == text
    assert json.loads(text)["schema_version"] == SCHEMA_VERSION


def test_golden_samples_cover_the_shortest_and_the_longest_source(tiny_bundle: Path) -> None:
    golden = read_manifest(tiny_bundle).golden
    lengths = [len(sample.source_ids) for sample in golden]
    assert (min(lengths), max(lengths)) == (1, 32)
    assert len(golden) >= 10
    assert len({sample.greedy for sample in golden}) > 5


def test_a_moved_or_copied_bundle_loads(bundle: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load(tiny_bundle).generate("word")[0].token_ids
    moved = bundle.rename(bundle.with_name("a name with spaces, \u00e9"))
    assert load(moved).generate("word")[0].token_ids == expected
    monkeypatch.chdir(moved.parent)
    assert load(moved.name).generate("word")[0].token_ids == expected
    monkeypatch.chdir(moved)
    assert load(".").generate("word")[0].token_ids == expected
    link = moved.with_name("link")
    link.symlink_to(moved)
    assert load(link).generate("word")[0].token_ids == expected


def test_links_that_stay_inside_are_followed(bundle: Path) -> None:
    (bundle / "kept").mkdir()
    (bundle / "config.json").rename(bundle / "kept" / "config.json")
    (bundle / "config.json").symlink_to("kept/config.json")
    open_bundle(bundle)


def test_other_files_in_the_folder_do_not_matter(bundle: Path) -> None:
    (bundle / "README.md").write_text("a note")
    open_bundle(bundle)


def test_a_file_that_the_checkpoint_did_not_have_reads_as_empty(tiny_bundle: Path) -> None:
    bundle = open_bundle(tiny_bundle)
    assert isinstance(bundle, Bundle)
    assert bundle.read_json("generation_config.json") == {}
    assert bundle.read_json("config.json")["model_type"] == "transformer"


# Damage


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path / "nowhere")
    assert problem == "there is no such folder; `edgeformer export CHECKPOINT -o BUNDLE` makes one"


def test_a_file_in_place_of_the_folder_is_named(bundle: Path) -> None:
    (problem,) = problems(bundle / "config.json")
    assert problem.startswith("there is no such folder")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "onnx/decoder.onnx", "ort-cpu-int8/weights.data"])
def test_a_missing_file_is_named(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    with pytest.raises(BundleError) as caught:
        open_bundle(bundle)
    assert caught.value.problems[0] == f"{name} is missing"


def test_another_size_is_told_from_another_content(bundle: Path) -> None:
    size = (bundle / "tokenizer.json").stat().st_size
    with (bundle / "tokenizer.json").open("ab") as file:
        file.write(b" ")
    flip_a_bit(bundle / "config.json")
    assert problems(bundle) == [
        "config.json has another SHA-256 than bundle.json records",
        f"tokenizer.json has {size + 1} bytes, expected {size}",
    ]


def test_everything_that_is_wrong_is_named_at_once(bundle: Path) -> None:
    (bundle / "config.json").unlink()
    (bundle / "target_tokenizer.json").write_text("")
    flip_a_bit(bundle / "onnx" / "weights.data")
    (bundle / "ort-cpu-fp32" / "decoder.onnx").unlink()
    (bundle / "ort-cpu-int8" / "encoder.onnx").unlink()
    (bundle / "ort-cpu-int8" / "encoder.onnx").mkdir()
    found = problems(bundle)
    assert found[0] == "config.json is missing"
    assert found[1].startswith("target_tokenizer.json has 0 bytes, expected ")
    assert found[2] == "onnx/weights.data has another SHA-256 than bundle.json records"
    assert found[3] == "ort-cpu-fp32/decoder.onnx is missing"
    assert found[4].startswith("ort-cpu-int8/encoder.onnx ")
    assert len(found) == 5


def test_only_what_is_loaded_is_checked(bundle: Path) -> None:
    """An artifact for another machine may be large, or have been left out of the copy."""
    shutil.rmtree(bundle / "ort-cpu-int8")
    flip_a_bit(bundle / "onnx" / "weights.data")
    assert load(bundle).artifact.name == "ort-cpu-fp32"
    open_bundle(bundle, artifacts=lambda artifact: artifact.precision == "fp32" and artifact.name != "onnx")
    with pytest.raises(BundleError, match=r"onnx/weights\.data has another SHA-256"):
        load(bundle, "onnx")
    with pytest.raises(BundleError, match=r"ort-cpu-int8/weights\.data is missing"):
        load(bundle, "ort-cpu-int8")
    flip_a_bit(bundle / "tokenizer.json")
    assert "tokenizer.json has another SHA-256 than bundle.json records" in problems(
        bundle, artifacts=lambda artifact: False
    )


def test_graphs_that_onnx_runtime_cannot_read_are_named(bundle: Path) -> None:
    """The hash is right, so it was written like this."""
    for name in ("decoder.onnx", "encoder.onnx"):
        content = b"not a graph"
        (bundle / "ort-cpu-fp32" / name).write_bytes(content)
        record = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        edit(bundle, lambda v, n=name, r=record: v["artifacts"][1]["files"].update({f"ort-cpu-fp32/{n}": r}))  # type: ignore[misc]
    with pytest.raises(BundleError, match=r"ort-cpu-fp32/encoder\.onnx does not load"):
        load(bundle, "ort-cpu-fp32")


def test_a_tokenizer_that_is_none_is_named(bundle: Path) -> None:
    content = b'{"not": "a tokenizer"}'
    (bundle / "tokenizer.json").write_bytes(content)
    record = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(bundle, lambda values: values["files"].update({"tokenizer.json": record}))
    with pytest.raises(BundleError, match=r"tokenizer\.json is not a tokenizer"):
        load(bundle)


# bundle.json


def test_a_missing_manifest_is_named(bundle: Path) -> None:
    (bundle / "bundle.json").unlink()
    assert problems(bundle) == ["bundle.json is missing, so this is not a bundle"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"schema_version": 1,}', b"\xff\xfe\x00", b"PK\x03\x04"], ids=lambda content: repr(content)
)
def test_a_manifest_that_is_not_json_is_named(bundle: Path, content: bytes) -> None:
    (bundle / "bundle.json").write_bytes(content)
    (problem,) = problems(bundle)
    assert problem.startswith("bundle.json is damaged: ")


@pytest.mark.parametrize("content", ["[]", "null", '"bundle"', "{}", '{"schema_version": "1"}', '{"files": {}}'])
def test_json_that_is_no_manifest_is_named(bundle: Path, content: str) -> None:
    (bundle / "bundle.json").write_text(content)
    assert problems(bundle) == ["bundle.json names no schema_version, so it is not a bundle's"]


def test_a_folder_in_place_of_the_manifest_is_named(bundle: Path) -> None:
    (bundle / "bundle.json").unlink()
    (bundle / "bundle.json").mkdir()
    (problem,) = problems(bundle)
    assert problem == "bundle.json cannot be read: Is a directory"


def test_a_newer_schema_says_what_to_do(bundle: Path) -> None:
    edit(bundle, lambda values: values.update(schema_version=SCHEMA_VERSION + 1, artifacts="of another kind"))
    (problem,) = problems(bundle)
    assert (
        problem
        == f"its schema is {SCHEMA_VERSION + 1}, this edgeformer reads up to {SCHEMA_VERSION}: upgrade edgeformer"
    )


def drop(*path: str | int) -> Edit:
    def change(values: Any) -> None:
        *parents, last = path
        for key in parents:
            values = values[key]
        del values[last]

    return change


def put(value: object, *path: str | int) -> Edit:
    def change(values: Any) -> None:
        *parents, last = path
        for key in parents:
            values = values[key]
        values[last] = value

    return change


DAMAGE = {
    **{f"no {key}": drop(key) for key in ("sizes", "tokens", "files", "artifacts", "golden", "model_type")},
    "no vocab_size": drop("sizes", "vocab_size"),
    "an unknown size": put(1, "sizes", "num_experts"),
    "no end token": drop("tokens", "ends"),
    "no hash": drop("files", "config.json", "sha256"),
    "artifacts in a string": put("onnx", "artifacts"),
    "files in a list": put([], "files"),
    "an artifact without files": drop("artifacts", 0, "files"),
    "an unknown key of an artifact": put(1, "artifacts", 0, "extra"),
    "a graph that is not recorded": drop("artifacts", 1, "files", "ort-cpu-fp32/decoder.onnx"),
    "a golden sample without ids": drop("golden", 0, "greedy"),
}


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_manifest_is_named(bundle: Path, change: Edit) -> None:
    edit(bundle, change)
    (problem,) = problems(bundle)
    assert problem.startswith("bundle.json is damaged: ")


MORE_DAMAGE = {
    "no decoder": drop("artifacts", 1, "graphs", "decoder"),
    "a size in words": put("many", "sizes", "vocab_size"),
    "a size of nothing": put(0, "sizes", "num_layers"),
    "an end token outside the vocabulary": put([69], "tokens", "ends"),
    "a token in words": put(["</s>"], "tokens", "ends"),
    "a byte count in words": put("391", "files", "config.json", "bytes"),
    "a hash that is none": put(7, "files", "config.json", "sha256"),
    "two artifacts of one name": put("onnx", "artifacts", 1, "name"),
}


@pytest.mark.parametrize("change", MORE_DAMAGE.values(), ids=MORE_DAMAGE)
def test_a_manifest_with_senseless_values_is_named(bundle: Path, change: Edit) -> None:
    edit(bundle, change)
    (problem,) = problems(bundle)
    assert problem.startswith("bundle.json is damaged: ")


# Paths stay inside


@pytest.mark.parametrize(
    "name", ["../outside.json", "onnx/../../outside.json", "/etc/hostname", "..\\outside.json", "", ".", "a/.."]
)
def test_a_path_that_leaves_the_bundle_is_refused(bundle: Path, name: str) -> None:
    record = json.loads((bundle / "bundle.json").read_text())["files"]["config.json"]
    shutil.copyfile(bundle / "config.json", bundle.parent / "outside.json")
    edit(bundle, lambda values: values["files"].update({name: record}))
    (problem,) = problems(bundle)
    assert problem == f"bundle.json is damaged: ValueError: path {name!r} leaves the bundle"


def test_a_graphs_path_that_leaves_the_bundle_is_refused(bundle: Path) -> None:
    edit(bundle, put("../outside.onnx", "artifacts", 0, "graphs", "encoder"))
    (problem,) = problems(bundle)
    assert problem.startswith("bundle.json is damaged: ")


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "absolute"])
def test_a_link_that_leads_out_is_refused_although_the_content_is_right(bundle: Path, relative: bool) -> None:
    outside = bundle.parent / "outside.json"
    (bundle / "config.json").rename(outside)
    (bundle / "config.json").symlink_to("../outside.json" if relative else outside)
    assert problems(bundle) == ["config.json leads out of the bundle"]


def test_a_folder_that_leads_out_is_refused_although_the_content_is_right(bundle: Path) -> None:
    (bundle / "onnx").rename(bundle.parent / "elsewhere")
    (bundle / "onnx").symlink_to("../elsewhere")
    with pytest.raises(BundleError) as caught:
        open_bundle(bundle)
    names = ("onnx/decoder.onnx", "onnx/encoder.onnx", "onnx/weights.data")
    assert caught.value.problems[:3] == tuple(f"{name} leads out of the bundle" for name in names)


def test_links_in_a_circle_are_named(bundle: Path) -> None:
    (bundle / "config.json").unlink()
    (bundle / "config.json").symlink_to("again.json")
    (bundle / "again.json").symlink_to("config.json")
    (problem,) = problems(bundle)
    assert problem.startswith("config.json ")


def test_a_path_that_is_none_is_named(bundle: Path) -> None:
    edit(bundle, put({"bytes": 1, "sha256": "0"}, "files", "a\0b"))
    (problem,) = problems(bundle)
    assert problem.startswith("bundle.json is damaged: ")


@pytest.mark.skipif(older(version("onnxruntime"), "1.25"), reason="older ONNX Runtimes read what a graph names")
def test_weights_outside_the_bundle_are_not_read(bundle: Path) -> None:
    """A graph names its weights by a path of its own, which the hash of the graph does not make safe."""
    graph = bundle / "ort-cpu-fp32" / "encoder.onnx"
    shutil.copyfile(bundle / "ort-cpu-fp32" / "weights.data", bundle.parent / "wei.data")
    content = graph.read_bytes()
    assert b"weights.data" in content
    content = content.replace(b"weights.data", b"../../wei.da"[:12])
    (bundle.parent / "wei.data").rename(bundle.parent / "wei.da")
    graph.write_bytes(content)
    record = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit(bundle, put(record, "artifacts", 1, "files", "ort-cpu-fp32/encoder.onnx"))
    with pytest.raises(BundleError, match=r"ort-cpu-fp32/encoder\.onnx does not load"):
        load(bundle, "ort-cpu-fp32")


# Older schemas


def test_a_manifest_of_schema_2_reads_as_an_encoder_decoder(bundle: Path) -> None:
    values = json.loads((bundle / MANIFEST).read_text())
    sizes, tokens = values["sizes"], values["tokens"]
    old_sizes = {name: n for name, n in sizes.items() if name not in ("source_vocab_size", "max_source_positions")}
    old_tokens = {"pad": tokens["pad"], "start": tokens["start"], "end": tokens["ends"][0]}
    del values["kind"]
    values |= {"schema_version": 2, "sizes": old_sizes, "tokens": old_tokens}
    now = read_manifest(bundle)
    (bundle / MANIFEST).write_text(json.dumps(values))
    assert read_manifest(bundle) == now
    assert now.kind == "encoder-decoder"
