"""What an engine was built with and for is compared with this machine, before any of it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import load
from edgeformer.runtime.backends.tensorrt import TensorRT, driver, fitness
from edgeformer.runtime.bundle import read_manifest
from edgeformer.runtime.errors import BackendUnavailableError

from .conftest import Machine, MakeBundle
from .fake_cuda import Result

RTX = {"module": "tensorrt_rtx", "version": "1.7.1.116"}
LEAN = {"version_compatible": True}

# What is installed, what the engine says of itself, and what must be said about it.
CASES: dict[str, tuple[dict[str, str], dict[str, Any], list[str]]] = {
    "tensorrt is missing": ({}, {}, ["tensorrt is not installed", "pip install 'edgeformer[gpu]'"]),
    "rtx is missing": ({"tensorrt": "11.4"}, RTX, ["tensorrt_rtx is not installed", "pip install 'edgeformer[rtx]'"]),
    "lean would do": ({}, LEAN, ["tensorrt is not installed", "tensorrt-lean-cu13==11.4.0.1 for its lean runtime"]),
    "lean does not run other engines": ({"tensorrt_lean": "11.4.0.1"}, {}, ["tensorrt is not installed"]),
    "another version": (
        {"tensorrt": "10.13.3.9"},
        {},
        ["were built by tensorrt 11.4.0.1, tensorrt 10.13.3.9 is installed", "optimize the bundle with 10.13.3.9"],
    ),
    "a later version, where the lean runtime would do": (
        {"tensorrt": "12.0.0.1"},
        LEAN,
        ["tensorrt 12.0.0.1 is installed", "or pip install tensorrt-lean-cu13==11.4.0.1 for its lean runtime"],
    ),
    "a later version": ({"tensorrt": "11.4.1.0"}, {}, ["11.4.0.1", "11.4.1.0", "the version that built them only"]),
    "another version of the lean runtime": (
        {"tensorrt_lean": "11.3.0.9"},
        LEAN,
        ["tensorrt is not installed", "tensorrt_lean 11.3.0.9 is here, which runs its own version only"],
    ),
    "another platform": ({"tensorrt": "11.4.0.1"}, {"platform": "qnx-aarch64"}, ["are for qnx-aarch64, this is "]),
    "another GPU": (
        {"tensorrt": "11.4.0.1"},
        {"compute_capabilities": ("8.6", "8.7")},
        ["compute capability 8.6, 8.7, NVIDIA Pretence 4000 has 8.9", "optimize BUNDLE --target tensorrt-11"],
    ),
    "a GPU before the compatible ones": (
        {"tensorrt": "11.4.0.1"},
        {"compute_capabilities": ("9.0", "10.0"), "hardware_compatible": True},
        ["9.0, 10.0", "has 8.9"],
    ),
    "an unknown module": ({}, {"module": "tensorrt_xl"}, ["are of tensorrt_xl", "upgrade edgeformer"]),
}
FIT: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "the same version": ({"tensorrt": "11.4.0.1"}, {}),
    "the same version, said shorter": ({"tensorrt": "11.4.0"}, {}),
    "the lean runtime": ({"tensorrt_lean": "11.4.0.1"}, LEAN),
    "one of several GPUs": ({"tensorrt": "11.4.0.1"}, {"compute_capabilities": ("8.6", "8.9")}),
    "a GPU after the compatible ones": (
        {"tensorrt": "11.4.0.1"},
        {"compute_capabilities": ("8.0",), "hardware_compatible": True},
    ),
    "whatever GPU built it": ({"tensorrt": "11.4.0.1"}, {"compute_capabilities": ()}),
    "rtx": ({"tensorrt_rtx": "1.7.1.116"}, RTX),
}


def reason(bundle: Path) -> str | None:
    (artifact,) = [artifact for artifact in read_manifest(bundle).artifacts if artifact.name == "engines"]
    return TensorRT().unavailable(artifact)


@pytest.mark.parametrize(("installed", "record", "parts"), CASES.values(), ids=CASES)
def test_a_mismatch_names_both_sides_and_what_to_do(
    machine: Machine, make_bundle: MakeBundle, installed: dict[str, str], record: dict[str, Any], parts: list[str]
) -> None:
    machine.installed = installed
    bundle = make_bundle(**record)
    said = reason(bundle)
    assert said is not None
    assert "\n" not in said
    assert [part for part in parts if part not in said] == [], said
    with pytest.raises(BackendUnavailableError) as caught:
        machine.load(bundle)
    assert said in str(caught.value)
    assert machine.modules == {}, "nothing is imported for an engine that does not fit"


@pytest.mark.parametrize(("installed", "record"), FIT.values(), ids=FIT)
def test_what_fits_is_run(
    machine: Machine, make_bundle: MakeBundle, installed: dict[str, str], record: dict[str, Any]
) -> None:
    machine.installed = installed
    bundle = make_bundle(**record)
    assert reason(bundle) is None
    assert machine.load(bundle).generate("word")[0].token_ids
    assert list(machine.modules) == list(installed)


def test_a_plan_without_a_record_is_refused(machine: Machine, make_bundle: MakeBundle) -> None:
    import json

    bundle = make_bundle()
    values = json.loads((bundle / "bundle.json").read_text())
    values["artifacts"][-1]["engine"] = None
    (bundle / "bundle.json").write_text(json.dumps(values))
    assert "does not say what its engines were built with" in str(reason(bundle))


def test_the_lean_runtime_of_an_engines_version_runs_it_beside_a_later_tensorrt(
    machine: Machine, make_bundle: MakeBundle
) -> None:
    machine.installed = {"tensorrt": "12.0.0.1", "tensorrt_lean": "11.4.0.1"}
    assert machine.load(make_bundle(version_compatible=True)).generate("word")[0].token_ids
    assert list(machine.modules) == ["tensorrt_lean"]


# The driver

DRIVERS: dict[str, tuple[dict[str, Any], str]] = {
    "no driver": ({"init": RuntimeError("Failed to dlopen libcuda.so.1")}, driver.NO_DRIVER),
    "a stub of one": ({"init": Result.CUDA_ERROR_STUB_LIBRARY}, f"{driver.NO_DRIVER} (CUDA_ERROR_STUB_LIBRARY)"),
    "no GPU": ({"init": Result.CUDA_ERROR_NO_DEVICE}, driver.NO_GPU),
    "a driver that shows none": ({"devices": 0}, driver.NO_GPU),
    "a driver that fails": (
        {"init": Result.CUDA_ERROR_UNKNOWN},
        "the NVIDIA driver does not start: CUDA_ERROR_UNKNOWN",
    ),
}


@pytest.mark.parametrize(("driver_is", "said"), DRIVERS.values(), ids=DRIVERS)
def test_a_machine_without_driver_or_gpu_gets_one_line(
    machine: Machine, engine_bundle: Path, driver_is: dict[str, Any], said: str
) -> None:
    vars(machine.cuda).update(driver_is)
    assert reason(engine_bundle) == TensorRT().unavailable() == said
    with pytest.raises(BackendUnavailableError, match="artifact engines cannot run here: "):
        machine.load(engine_bundle)


def test_without_cuda_python_it_is_named(
    machine: Machine, engine_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise BackendUnavailableError(driver.NOT_INSTALLED)

    monkeypatch.setattr(driver, "load_cuda", missing)
    assert reason(engine_bundle) == "cuda-python is not installed; pip install 'cuda-python'"


def test_without_any_tensorrt_every_way_to_get_one_is_named(machine: Machine) -> None:
    machine.installed = {}
    said = TensorRT().unavailable()
    assert said is not None
    assert "edgeformer[gpu]" in said
    assert "edgeformer[rtx]" in said


def test_load_takes_the_cpus_artifact_where_the_engine_does_not_fit(machine: Machine, make_bundle: MakeBundle) -> None:
    assert load(make_bundle(compute_capabilities=("12.0",))).artifact.name == "ort-cpu-fp32"


# Installed modules


def test_a_folder_of_type_stubs_is_no_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stubbed_only").mkdir()
    (tmp_path / "stubbed_only" / "__init__.pyi").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert not fitness.is_installed("stubbed_only")
    assert not fitness.is_installed("no_such_module")
    assert fitness.is_installed("numpy")


def test_versions_come_from_whichever_distribution_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "tensorrt-cu12":
            return "10.13.3.9"
        raise fitness.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(fitness.metadata, "version", version)
    assert fitness.installed_version("tensorrt") == "10.13.3.9"
    assert fitness.installed_version("tensorrt_rtx") is None
