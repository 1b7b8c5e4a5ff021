"""The tiny bundle with engines of the stand-in, and models that run them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from edgeformer.runtime import Model, load, names
from edgeformer.runtime.backends import older
from edgeformer.runtime.backends.tensorrt import driver, fitness, loaded
from edgeformer.runtime.bundle import ROLES, Artifact, Engine, Limits, Manifest, open_bundle, record_file
from edgeformer.runtime.identity import graph_hash, this_platform

from .fake_cuda import FakeCuda
from .fake_tensorrt import FakeTensorRT, write_plan

CAPACITY = 32
BATCH, SOURCE_LEN, Q_LEN, WANTED = (1, 4, 16), (1, 8, 32), (1, 4, 8), (1, 1, 5)


def profiles(kind: str = "encoder-decoder") -> dict[str, tuple[dict[str, Limits], ...]]:
    both = {"batch": BATCH} if kind == "decoder" else {"batch": BATCH, "source_len": SOURCE_LEN}
    one = {"q_len": (1, 1, 1), "n": (1, 1, 1)}
    several = {
        "encoder": ({**both, "n": WANTED} if kind == "encoder" else both,),
        "decoder": ({**both, "q_len": Q_LEN, "n": WANTED}, {**both, **one}),
    }
    return {role: several[role] for role in ROLES[kind]}


def shapes_of(profile: Mapping[str, Limits], manifest: Manifest, capacity: int, role: str) -> dict[str, Any]:
    """Least, usual and most of each input's shape."""
    sizes, encoder = manifest.sizes, manifest.encoder
    given: dict[str, names.Dims] = encoder.inputs() if encoder is not None else dict(names.encoder_inputs())
    if role == "decoder":
        given = dict(names.step_inputs(sizes))
        given |= dict.fromkeys(names.past_names(sizes), names.cache_shape(sizes))
        given |= dict.fromkeys(names.encoded_names(sizes), names.encoded_shape(sizes))

    def extent(dim: str | int, i: int) -> int:
        return dim if isinstance(dim, int) else capacity if dim == "capacity" else profile[dim][i]

    return {name: [[extent(dim, i) for dim in dims] for i in range(3)] for name, dims in given.items()}


MakeBundle = Callable[..., Path]


@pytest.fixture(scope="session")
def make_bundle(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> MakeBundle:
    """A copy of the tiny bundle, or of `base`, with an artifact `engines`, whose plans the stand-in reads.

    Arguments change the artifact's record, and `plan` what the step graph's plan holds.
    """
    from edgeformer.exporter.external_weights import load_graph, save_graphs
    from edgeformer.exporter.tensorrt.graphs import rewrite

    if older(onnxruntime.__version__, "1.25"):  # as there is for Python 3.10
        pytest.skip("the stand-in computes graphs of opset 24, which needs onnxruntime 1.25")
    graphs: dict[tuple[Path, str, str, int], Path] = {}

    def graph_folder(base: Path, dtype: Any, attention: Any, capacity: int) -> Path:
        key = (base, dtype, attention, capacity)
        if key not in graphs:
            folder = tmp_path_factory.mktemp("graphs")
            models = {path.stem: load_graph(path) for path in sorted((base / "onnx").glob("*.onnx"))}
            for role, model in models.items():
                held = capacity if role == "decoder" else None
                rewrite(model, role, dtype=dtype, weights=None, attention=attention, capacity=held)
            save_graphs(folder, models)
            graphs[key] = folder
        return graphs[key]

    def make(
        *,
        base: Path = tiny_bundle,
        dtype: str = "float32",
        attention: str = "native",
        capacity: int = CAPACITY,
        plan: Mapping[str, Any] | None = None,
        in_place: bool = True,
        extra_files: tuple[str, ...] = (),
        **record: Any,
    ) -> Path:
        folder = shutil.copytree(base, tmp_path_factory.mktemp("engines") / "bundle")
        bundle, source = open_bundle(folder), graph_folder(base, dtype, attention, capacity)
        sizes, roles, place = bundle.manifest.sizes, ROLES[bundle.manifest.kind], folder / "engines"
        solved = profiles(bundle.manifest.kind)
        place.mkdir()
        aliases = dict(zip(names.present_names(sizes), names.past_names(sizes), strict=True))
        engine = Engine(
            **{
                "module": "tensorrt",
                "version": "11.4.0.1",
                "compute_capabilities": ("8.9",),
                "platform": this_platform(),
                "graphs": {role: graph_hash(bundle.manifest.artifacts[0], role) for role in roles},
                "version_compatible": False,
                "hardware_compatible": False,
                "stripped": False,
                "dtype": dtype,
                "capacity": capacity if "decoder" in roles else 0,
                "profiles": solved,
                "memory": {"encoder": 1000, "decoder": 2000},
                **record,
            }
        )
        for role in roles:
            shapes = [shapes_of(profile, bundle.manifest, capacity, role) for profile in solved[role]]
            content: dict[str, Any] = {"graph": str(source / f"{role}.onnx"), "profiles": shapes}
            if role == "decoder":
                content |= {"aliases": aliases if in_place else {}, "must_alias": aliases, "in_place": in_place}
                content |= plan or {}
            write_plan(place / f"{role}.plan", **{key: value for key, value in content.items() if value is not None})
        for name in extra_files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")
        graphs_of = {role: f"engines/{role}.plan" for role in roles}
        files = {path: record_file(folder / path) for path in (*graphs_of.values(), *extra_files)}
        artifact = Artifact("engines", "tensorrt-11", "tensorrt", "fp32", graphs_of, files, {}, {}, engine=engine)
        artifacts = (*bundle.manifest.artifacts, artifact)
        manifest = dataclasses.replace(bundle.manifest, artifacts=artifacts)
        (folder / "bundle.json").write_text(manifest.to_json())
        return folder

    return make


@pytest.fixture(scope="session")
def engine_bundle(make_bundle: MakeBundle) -> Path:
    """Not to be changed."""
    return make_bundle()


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


@pytest.fixture
def machine(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """This machine, with the stand-ins in place of the vendor's libraries; TensorRT 11.4 is installed on it."""
    made = Machine(cuda)
    monkeypatch.setattr(driver, "load_cuda", lambda: made.cuda)
    monkeypatch.setattr(driver, "DEVICES", {})
    monkeypatch.setattr(fitness, "is_installed", lambda name: name in made.installed)
    monkeypatch.setattr(fitness, "installed_version", lambda name: made.installed.get(name))
    monkeypatch.setattr(loaded, "load_module", made.load_module)
    return made


class Machine:
    """Which modules are installed, by version; and the modules."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.installed = {"tensorrt": "11.4.0.1"}
        self.modules: dict[str, FakeTensorRT] = {}

    def load_module(self, name: str) -> FakeTensorRT:
        if name not in self.modules:
            self.modules[name] = FakeTensorRT(self.cuda, name, self.installed[name])
        return self.modules[name]

    def load(self, bundle: Path) -> Model:
        return load(bundle, "engines")


@pytest.fixture
def on_gpu(machine: Machine, engine_bundle: Path) -> Model:
    return machine.load(engine_bundle)


@pytest.fixture(scope="session")
def on_cpu(tiny_bundle: Path) -> Model:
    return load(tiny_bundle, "ort-cpu-fp32", threads=1)
