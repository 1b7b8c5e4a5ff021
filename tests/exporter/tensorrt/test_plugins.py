"""Our own attention on the way into engines: a stand-in builds, and what it was told is looked at."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.tensorrt import engines, plugins
from edgeformer.exporter.tensorrt.building import network_flags
from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.exporter.tensorrt.plugins import offer_plugins
from edgeformer.exporter.tensorrt.report import BuildReport
from edgeformer.exporter.tensorrt.requests import BuildRequest, Built, Installed
from edgeformer.runtime.bundle import Artifact, open_bundle
from edgeformer.runtime.errors import BuildError
from edgeformer.runtime.plugins.kernels import INDEX, Variant, write_index

Told = list[tuple[BuildRequest, bool]]  # what to build, and whether the kernels lay there when it was built
Optimize = Callable[[str], Artifact]


@pytest.fixture
def compiled_for(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """GPUs that kernels were compiled for; what is compiled is an index."""
    seen: list[tuple[str, ...]] = []

    def write_kernels(folder: Path, variants: Iterable[Variant], compute_capabilities: Sequence[str]) -> None:
        assert {variant.operator for variant in variants} == {"CachedAttention", "SourceAttention"}
        seen.append(tuple(compute_capabilities))
        folder.mkdir()
        write_index(folder, [], {})

    monkeypatch.setattr(plugins, "write_kernels", write_kernels)
    return seen


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What a machine that has TensorRT and a GPU was told to build."""
    told: Told = []

    def run_build(request: BuildRequest, folder: Path, on_build: Any) -> Built:
        told.append((request, request.kernels is not None and (Path(request.kernels) / INDEX).exists()))
        Path(request.plan).write_bytes(b"a plan")
        report = BuildReport(
            role=request.role, attentions=(), cache_updates=(), layers=(), compiled=False, inputs=(), outputs=(),
            weights={}, plan_bytes=6, memory={}, seconds=1.0, profiles=request.profiles, settings=request.settings,
            versions={}, unused_inputs=(), log=(),
        )  # fmt: skip
        return Built(1.0, 1, dataclasses.asdict(report))

    monkeypatch.setattr(engines, "probe", lambda module, install: Installed(module, "11.9.9.9", "8.9"))
    monkeypatch.setattr(engines, "run_build", run_build)
    return told


@pytest.fixture
def optimize(tiny_bundle: Path, tmp_path: Path) -> Optimize:
    def run(attention: str) -> Artifact:
        folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
        optimize_bundle(folder, "tensorrt-11", "fp16", EngineOptions(attention=attention))
        artifact = open_bundle(folder).artifact("tensorrt-11-fp16")
        assert artifact is not None
        return artifact

    return run


def files_of(artifact: Artifact) -> set[str]:
    return {name.removeprefix("tensorrt-11-fp16/") for name in artifact.files}


def test_an_engine_that_carries_its_kernels_stands_alone(
    optimize: Optimize, built: Told, compiled_for: list[tuple[str, ...]]
) -> None:
    artifact = optimize("plugin-aot")
    assert compiled_for == [()]  # the portable ones alone
    assert [(request.role, request.ahead_of_time, there) for request, there in built] == [
        ("encoder", True, True),
        ("decoder", True, True),
    ]
    assert built[0][0].settings["kernels of our own attention"] == "in the engine"
    assert files_of(artifact) == {"encoder.plan", "decoder.plan", "report.json", "report.html"}


def test_kernels_that_python_launches_stay_beside_the_engine(
    optimize: Optimize, built: Told, compiled_for: list[tuple[str, ...]]
) -> None:
    artifact = optimize("plugin")
    assert compiled_for == [("8.9",)]
    assert [(request.ahead_of_time, there) for request, there in built] == [(False, True)] * 2
    assert f"kernels/{INDEX}" in files_of(artifact)


@pytest.mark.parametrize(
    ("attention", "in_place"), [("native", None), ("plugin", True), ("plugin-aot", True), ("primitive", False)]
)
def test_where_an_engine_does_not_tell_of_its_caches_the_record_does(attention: str, in_place: bool | None) -> None:
    assert engines.caches_in_place(attention) is in_place


# In the process that builds


REQUEST = BuildRequest("stand_in", "decoder", "graph.onnx", "a.plan", (), (), kernels="kernels", ahead_of_time=True)


def test_a_network_is_told_to_prefer_what_the_engine_carries_where_it_can_be() -> None:
    request = dataclasses.replace(REQUEST, module="tensorrt")
    flags = SimpleNamespace(STRONGLY_TYPED=1, PREFER_AOT_PYTHON_PLUGINS=3)
    trt: Any = SimpleNamespace(NetworkDefinitionCreationFlag=flags)
    assert network_flags(trt, request, "10.13.3.9") == 2 | 8
    assert network_flags(trt, request, "11.4.0.106") == 8
    assert network_flags(trt, dataclasses.replace(request, ahead_of_time=False), "10.13.3.9") == 2
    del flags.PREFER_AOT_PYTHON_PLUGINS
    assert network_flags(trt, request, "10.13.3.9") == 2


def test_a_graph_without_our_operators_needs_no_plugins() -> None:
    offer_plugins(SimpleNamespace(), dataclasses.replace(REQUEST, kernels=None))


def test_a_module_that_takes_no_such_plugins_is_one_line_with_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match="stand_in.plugin cannot be imported: .*; take --attention plugin, whose"):
        offer_plugins(SimpleNamespace(), REQUEST)
    for name in ("stand_in", "stand_in.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    with pytest.raises(BuildError, match="stand_in.plugin has no aot_impl, as before TensorRT 10.9; take --attention"):
        offer_plugins(SimpleNamespace(), REQUEST)
