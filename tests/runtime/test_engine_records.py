"""A record of engines that makes no sense is refused when the bundle is read, in one line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.exporter.tensorrt.profiles import solve
from edgeformer.runtime.bundle import ROLES, Engine, Manifest, read_manifest
from edgeformer.runtime.engine_records import senseless_engine
from edgeformer.runtime.errors import BundleError


def record(manifest: Manifest) -> Engine:
    """As the builder makes it."""
    return Engine(
        module="tensorrt_rtx", version="1.7.1.116", compute_capabilities=("8.9",), platform="linux-x86_64",
        graphs={}, version_compatible=False, hardware_compatible=False, stripped=False, dtype="float16", capacity=16,
        profiles=solve(manifest.kind, manifest.sizes, EngineOptions(capacity=16)).profiles, memory={"encoder": 1},
    )  # fmt: skip


def written(tiny_bundle: Path, folder: Path, **changes: Any) -> Path:
    """A `bundle.json` whose portable artifact has an engine's record, as the builder makes it but for `changes`."""
    manifest = read_manifest(tiny_bundle)
    first = dataclasses.replace(manifest.artifacts[0], engine=record(manifest))
    values = json.loads(dataclasses.replace(manifest, artifacts=(first,)).to_json())
    values["artifacts"][0]["engine"].update(changes)
    (folder / "bundle.json").write_text(json.dumps(values))
    return folder


def read(tiny_bundle: Path, folder: Path, **changes: Any) -> Manifest:
    return read_manifest(written(tiny_bundle, folder, **changes))


def test_what_the_builder_records_is_read(tiny_bundle: Path, tmp_path: Path) -> None:
    (artifact,) = read(tiny_bundle, tmp_path).artifacts
    assert artifact.engine is not None
    assert artifact.engine.capacity == 16


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"capacity": 0}, "capacity is 0, expected a whole number of at least 1"),
        ({"capacity": "many"}, "capacity is 'many', expected"),
        ({"dtype": "float8"}, "dtype is 'float8', expected float16, bfloat16, float32"),
        ({"version": 3}, "version is 3, expected text"),
        ({"version": "new"}, "version is 'new', expected one such as 10.13.3.9"),
        ({"stripped": "no"}, "stripped is 'no', expected true or false"),
        ({"compute_capabilities": ["ada"]}, "compute capability is 'ada', expected one such as 8.9"),
        ({"memory": {"encoder": "much"}}, "memory of the encoder is 'much', expected a number of bytes"),
        ({"memory": [1]}, "memory is no object"),
        ({"graphs": None}, "graphs is no object"),
        ({"profiles": {"encoder": [], "decoder": []}}, "the encoder has no profile; .*the decoder has no profile"),
        (
            {"profiles": {"encoder": [{"batch": [1, 1, 1]}], "decoder": []}},
            "a profile of the encoder has no source_len",
        ),
        ({"profiles": {"encoder": [{"batch": [64, 8, 1]}]}}, "batch goes from 64 by 8 to 1, expected rising numbers"),
    ],
)
def test_what_makes_no_sense_is_named(tiny_bundle: Path, tmp_path: Path, changes: Any, problem: str) -> None:
    with pytest.raises(BundleError, match=f"bundle.json is damaged: .*{problem}"):
        read(tiny_bundle, tmp_path, **changes)


def test_a_language_models_record_has_no_encoder_and_its_profiles_no_source(tiny_bundle: Path) -> None:
    manifest = read_manifest(tiny_bundle)
    sizes = dataclasses.replace(manifest.sizes, source_vocab_size=0, max_source_positions=0)
    engine = dataclasses.replace(record(manifest), profiles=solve("decoder", sizes, EngineOptions(capacity=9)).profiles)
    assert list(senseless_engine(engine, ROLES["decoder"])) == []
    short = {name: limits for name, limits in engine.profiles["decoder"][0].items() if name != "q_len"}
    short_profiles = dataclasses.replace(engine, profiles={"decoder": (short,)})
    assert list(senseless_engine(short_profiles, ROLES["decoder"])) == ["a profile of the decoder has no q_len"]
    assert "the encoder has no profile" in list(senseless_engine(engine, ROLES["encoder-decoder"]))


def test_an_encoders_record_has_no_capacity(tiny_bundle: Path) -> None:
    manifest = read_manifest(tiny_bundle)
    profiles = solve("encoder", manifest.sizes, EngineOptions()).profiles
    engine = dataclasses.replace(record(manifest), capacity=0, profiles=profiles)
    assert list(senseless_engine(engine, ROLES["encoder"])) == []
    assert "capacity is 0, expected a whole number of at least 1" in list(senseless_engine(engine, ROLES["decoder"]))
