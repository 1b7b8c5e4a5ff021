"""`edgeformer inspect`, of a bundle with engines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.exporter.tensorrt.report import ArtifactReport, Attention, BuildReport
from edgeformer.runtime.bundle import Artifact, Engine, record_file

NAME = "tensorrt-rtx-fp16"
SOURCE = {"batch": (1, 8, 64), "source_len": (1, 8, 64)}
PREFILL = {**SOURCE, "q_len": (1, 4, 32), "n": (1, 1, 32)}
DECODE = {**SOURCE, "q_len": (1, 1, 1), "n": (1, 1, 1)}
ENGINE = Engine(
    module="tensorrt_rtx", version="1.7.1.116", compute_capabilities=("8.9", "12.0"), platform="linux-x86_64",
    graphs={"encoder": "00", "decoder": "11"}, version_compatible=False, hardware_compatible=False, stripped=False,
    dtype="float16", capacity=128, profiles={"encoder": (SOURCE,), "decoder": (PREFILL, DECODE)},
    memory={},
)  # fmt: skip


def attention(fused: bool) -> Attention:
    shape = ("batch", 2, "q_len", 16)
    return Attention("node", "layers.0.attention", "native", fused, "", (), "float16", shape, shape, "none")


def build_report(role: str, *fused: bool) -> BuildReport:
    return BuildReport(
        role=role, attentions=tuple(map(attention, fused)), cache_updates=(), layers=(), compiled=True, inputs=(),
        outputs=(), weights={"float16": 10}, plan_bytes=20, memory={"activations": 30}, seconds=1.0, profiles=(),
        settings={}, versions={}, unused_inputs=(), log=(),
    )  # fmt: skip


@pytest.fixture
def engines(bundle: Path) -> Path:
    """A bundle whose last artifact has plans (of no meaning) and a report."""
    folder = bundle / NAME
    folder.mkdir()
    builds = {"encoder": build_report("encoder", True, True), "decoder": build_report("decoder", True, False, True)}
    report = ArtifactReport(NAME, "tensorrt-rtx", "fp16", ENGINE.compute_capabilities, builds)
    (folder / "report.json").write_text(report.to_json())
    for role, size in (("encoder", 1500), ("decoder", 2500)):
        (folder / f"{role}.plan").write_bytes(bytes(size))
    artifact = Artifact(
        name=NAME, target="tensorrt-rtx", backend="tensorrt", precision="fp16",
        graphs={role: f"{NAME}/{role}.plan" for role in ("encoder", "decoder")},
        files={f"{NAME}/{path.name}": record_file(path) for path in folder.iterdir()},
        versions={"tensorrt_rtx": "1.7.1.116"}, needs={}, engine=ENGINE,
    )  # fmt: skip
    manifest = json.loads((bundle / "bundle.json").read_text())
    manifest["artifacts"].append(dataclasses.asdict(artifact))
    (bundle / "bundle.json").write_text(json.dumps(manifest))
    return bundle


def rows(out: str, *first: str) -> list[str]:
    """Lines that begin with these cells, with single spaces."""
    lines = (" ".join(line.split()) for line in out.splitlines())
    return [line for line in lines if line.startswith(" ".join(first))]


def test_plans_are_shown_with_their_fusion_gpus_and_profiles(cli: Callable[..., Any], engines: Path) -> None:
    out = cli("inspect", engines).ok.out
    built = "8.9, 12.0 tensorrt_rtx 1.7.1.116 128"
    assert rows(out, NAME, "encoder 1.5") == [f"{NAME} encoder 1.5 kB 2 of 2 {built}"]
    assert rows(out, NAME, "decoder 2.5") == [f"{NAME} decoder 2.5 kB 2 of 3 {built}"]
    assert rows(out, NAME, "decoder 0") == [f"{NAME} decoder 0 batch 1:8:64, source_len 1:8:64, q_len 1:4:32, n 1:1:32"]
    assert rows(out, NAME, "decoder 1") == [f"{NAME} decoder 1 batch 1:8:64, source_len 1:8:64, q_len 1, n 1"]
    assert rows(out, NAME, "encoder 0") == [f"{NAME} encoder 0 batch 1:8:64, source_len 1:8:64"]
    assert rows(out, NAME, "tensorrt-rtx fp16")


def test_json_has_the_engine_and_what_its_report_says(cli: Callable[..., Any], engines: Path) -> None:
    found = cli("inspect", engines, "--json").ok.json["artifacts"]
    assert "engine" not in found[0]
    engine = found[-1]
    assert engine["engine"]["compute_capabilities"] == ["8.9", "12.0"]
    assert engine["engine"]["profiles"]["decoder"][1]["q_len"] == [1, 1, 1]
    assert engine["report_problem"] is None
    decoder = engine["builds"]["decoder"]
    assert (decoder["fused"], len(decoder["attentions"])) == (2, 3)
    assert [attention["fused"] for attention in decoder["attentions"]] == [True, False, True]
    assert (decoder["plan_bytes"], decoder["weights"], decoder["memory"]) == (20, {"float16": 10}, {"activations": 30})


def test_an_engine_whose_report_is_damaged_is_shown_without_it(cli: Callable[..., Any], engines: Path) -> None:
    (engines / NAME / "report.json").write_text("{")
    result = cli("inspect", engines)
    result.refused("tensorrt-rtx-fp16/report.json has 1 bytes")
    assert rows(result.out, NAME, "decoder 2.5 kB not known: no report")
    found = cli("inspect", engines, "--json").json["artifacts"][-1]
    assert found["builds"] == {}
    assert "it is damaged" in found["report_problem"]


def test_an_engine_without_a_report_is_shown_without_it(
    cli: Callable[..., Any], engines: Path, edit: Callable[[Callable[[Any], None]], None]
) -> None:
    edit(lambda values: values["artifacts"][-1]["files"].pop(f"{NAME}/report.json"))
    assert rows(cli("inspect", engines).ok.out, NAME, "encoder 1.5 kB not known: no report")
    found = cli("inspect", engines, "--json").ok.json["artifacts"][-1]
    assert found["report_problem"] == f"artifact {NAME} has no report.json"


def test_a_bundle_without_engines_shows_no_table_of_them(cli: Callable[..., Any], bundle: Path) -> None:
    assert "fused attentions" not in cli("inspect", bundle).ok.out
