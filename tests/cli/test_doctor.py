"""`edgeformer doctor`, and what it looks at."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any

import pytest

from edgeformer.cli.machine import this_machine
from edgeformer.cli.requirements import EXTRAS


def test_it_shows_machine_packages_backends_and_extras(cli: Callable[..., Any]) -> None:
    result = cli("doctor").ok
    rows = [line.split() for line in result.out.splitlines()]
    assert ["numpy", version("numpy")] in rows
    assert ["ort-cpu", "yes"] in rows
    assert any(row[:1] == ["CPU"] for row in rows)
    assert result.err == ""


def test_json_has_it_all(cli: Callable[..., Any]) -> None:
    found = cli("doctor", "--json").ok.json
    assert set(found) == {"machine", "gpu", "own_operators", "packages", "backends", "extras"}
    assert found["machine"]["python"].count(".") >= 2
    assert found["packages"]["edgeformer"] == version("edgeformer")
    assert found["backends"]["ort-cpu"] is None
    assert set(found["extras"]) == set(EXTRAS)


def test_what_is_missing_comes_with_the_command_that_gets_it(
    cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr("importlib.metadata.version", nothing)
    monkeypatch.setattr("edgeformer.runtime.backends.onnxruntime_cpu.find_spec", lambda name: None)
    found = cli("doctor", "--json").ok.json
    assert found["packages"] == {}
    assert found["extras"]["gpu"] == {"missing": list(EXTRAS["gpu"]), "install": "pip install 'edgeformer[gpu]'"}
    assert found["backends"]["ort-cpu"] == "onnxruntime is not installed; pip install 'edgeformer[cpu]'"
    assert "pip install 'edgeformer[rtx]'" in cli("doctor").ok.out


def test_a_broken_backend_is_shown_and_breaks_nothing(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("warp", "no.such.module:Warp", "edgeformer.backends")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    found = cli("doctor", "--json").ok.json["backends"]
    assert found == {"warp": "it does not load: ModuleNotFoundError: No module named 'no'"}


def test_the_extras_are_those_of_the_package() -> None:
    declared: dict[str, set[str]] = {}
    for line in importlib.metadata.requires("edgeformer") or []:
        extra = re.search(r"extra == [\"'](\w+)[\"']", line)
        package = re.match(r"[\w-]+(\[\w+\])?", line)
        assert package is not None
        if extra:
            declared.setdefault(extra[1], set()).add(package[0])
    declared["export"] = declared["export"] - {"edgeformer[cpu]"} | declared["cpu"]
    assert {name: set(packages) for name, packages in EXTRAS.items()} == {name: declared[name] for name in EXTRAS}


def test_the_gpu_or_why_there_is_none(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeformer.runtime.backends.tensorrt import driver, fitness
    from edgeformer.runtime.errors import BackendUnavailableError

    class Pretence:
        name, compute_capability, integrated, driver_version = "NVIDIA Pretence 4000", "8.9", True, "13.0"

        def free_memory(self) -> tuple[int, int]:
            return 6 * 10**9, 8 * 10**9

    def missing() -> Any:
        raise BackendUnavailableError(driver.NO_DRIVER)

    monkeypatch.setattr(fitness, "installed_version", {"tensorrt": "11.4.0.1"}.get)
    monkeypatch.setattr(driver, "open_device", Pretence)
    assert "NVIDIA Pretence 4000, compute capability 8.9, CUDA 13.0, 6.0 GB of 8.0 GB free, shared" in cli("doctor").out
    assert cli("doctor", "--json").ok.json["gpu"]["tensorrt"] == {"tensorrt": "11.4.0.1"}
    monkeypatch.setattr(driver, "open_device", missing)
    assert cli("doctor", "--json").ok.json["gpu"] == {"tensorrt": {"tensorrt": "11.4.0.1"}, "reason": driver.NO_DRIVER}
    assert driver.NO_DRIVER in cli("doctor").ok.out


# The machine, from the files of others


def files(root: Path, **content: str) -> Path:
    for name, text in content.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_server_with_an_nvidia_gpu(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        proc__cpuinfo="processor\t: 0\nmodel name\t: Xeon 8480C\nflags\t\t: fpu avx2 amx_int8 avx512_vnni\n",
        proc__meminfo="MemTotal:       131072 kB\nMemFree: 1 kB\n",
        proc__driver__nvidia__version="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n",
        proc__driver__nvidia__gpus__gpu0__information="Model: \t\t NVIDIA H200\nIRQ:   \t\t 80\n",
        etc__os_release="",
    )
    files(root / "etc").joinpath("os-release").write_text('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n')
    found = this_machine(root)
    assert found.cpu == "Xeon 8480C"
    assert found.instruction_sets == ("avx2", "avx512_vnni", "amx_int8")
    assert found.memory_bytes == 131072 * 1024
    assert found.os == "Ubuntu 24.04.1 LTS"
    assert (found.nvidia_driver, found.gpus, found.jetson) == ("570.86.15", ("NVIDIA H200",), None)


def test_a_jetson(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        proc__cpuinfo="processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp\nCPU implementer\t: 0x41\n",
        etc__nv_tegra_release="# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n",
    )
    board = root / "proc" / "device-tree"
    board.mkdir()
    (board / "model").write_text("NVIDIA Jetson AGX Orin Developer Kit\0")
    found = this_machine(root)
    assert found.cpu == "NVIDIA Jetson AGX Orin Developer Kit"
    assert found.instruction_sets == ("neon", "neon fp16", "neon dot product")
    assert found.jetson == "NVIDIA Jetson AGX Orin Developer Kit, L4T 36.4.3"


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    found = this_machine(tmp_path)
    assert (found.instruction_sets, found.memory_bytes, found.gpus, found.jetson) == ((), None, (), None)
    assert found.cpu
    assert found.cores >= 1
