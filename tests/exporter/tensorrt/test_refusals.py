"""What a target, a version or a machine cannot do is refused before any work, with what would do."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import pytest

from edgeformer.exporter.targets import TARGETS, capabilities, choose_target
from edgeformer.exporter.tensorrt import memory
from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.exporter.tensorrt.refusals import check_features, check_given, check_machine
from edgeformer.exporter.tensorrt.requests import Installed
from edgeformer.runtime.errors import LimitsError, NotEnoughMemoryError, TargetError
from edgeformer.runtime.identity import this_platform

RTX = Installed("tensorrt_rtx", "1.7.1.116", gpu=None)
SERVER = Installed("tensorrt", "11.4.0.106", gpu="8.9")
EVERYTHING = EngineOptions(
    timing_cache=Path("timings"), strip_weights=True, version_compatible=True, hardware_compatible=True,
    weight_streaming=True,
)  # fmt: skip


def features(installed: Installed) -> frozenset[str]:
    return capabilities(installed.module, installed.version)


def test_engine_options_for_a_target_without_engines_are_refused_by_name() -> None:
    options = EngineOptions(capacity=9, strip_weights=True)
    with pytest.raises(LimitsError, match="--capacity, --strip-weights is for engines, and it has none"):
        check_given(options, TARGETS["ort-cpu"])
    check_given(EngineOptions(), TARGETS["ort-cpu"])


def test_an_optimization_level_beyond_five_is_refused() -> None:
    check_given(EngineOptions(opt_level=5), TARGETS["tensorrt-rtx"])
    for level in (-1, 6):
        with pytest.raises(LimitsError, match=f"--opt-level is {level}, expected 0 to 5"):
            check_given(EngineOptions(opt_level=level), TARGETS["tensorrt-rtx"])


def test_what_rtx_lacks_is_refused_all_at_once() -> None:
    with pytest.raises(LimitsError) as caught:
        check_features(EVERYTHING, RTX, features(RTX))
    options = [
        "--timing-cache",
        "--strip-weights",
        "--version-compatible",
        "--hardware-compatible",
        "--weight-streaming",
    ]
    assert caught.value.problems == tuple(f"it has no {option}: leave it out" for option in options)


def test_what_tensorrt_has_is_allowed() -> None:
    check_features(EVERYTHING, SERVER, features(SERVER))
    check_features(EngineOptions(fp32_accumulation=True), SERVER, features(SERVER))


def test_an_older_version_lacks_what_came_later() -> None:
    older = dataclasses.replace(SERVER, version="10.16.0.72")
    with pytest.raises(LimitsError, match="tensorrt 10.16.0.72: it has no --fp32-accumulation"):
        check_features(EngineOptions(fp32_accumulation=True), older, features(older))


def test_kernels_in_the_engine_are_refused_before_10_9_with_the_form_that_works() -> None:
    options = EngineOptions(attention="plugin-aot")
    check_features(options, SERVER, features(SERVER))
    older = dataclasses.replace(SERVER, version="10.8.0.43")
    with pytest.raises(LimitsError, match="10.8.0.43: it has no --attention plugin-aot, which came with 10.9: take"):
        check_features(options, older, features(older))
    check_features(EngineOptions(attention="plugin"), older, features(older))


def test_kernels_in_the_engine_are_refused_on_gpus_that_cannot_compile_them() -> None:
    """They are PTX for 8.0."""
    turing = dataclasses.replace(SERVER, gpu="7.5")
    with pytest.raises(TargetError, match="capability 8.0 and later, this one has 7.5: take --attention plugin"):
        check_machine(choose_target("tensorrt-11", "fp16", attention="plugin-aot"), turing, features(turing))
    check_machine(choose_target("tensorrt-11", "fp16", attention="plugin"), turing, features(turing))
    check_machine(choose_target("tensorrt-11", "fp16", attention="plugin-aot"), SERVER, features(SERVER))


def test_weights_are_stripped_only_where_there_is_a_gpu_to_build_on() -> None:
    without = dataclasses.replace(SERVER, gpu=None)
    with pytest.raises(LimitsError, match="--strip-weights needs a GPU while it builds, and there is none here"):
        check_features(EngineOptions(strip_weights=True), without, features(without))


def test_rtx_builds_without_a_gpu_and_tensorrt_does_not() -> None:
    check_machine(choose_target("tensorrt-rtx", "fp16"), RTX, features(RTX))
    with pytest.raises(TargetError, match="tensorrt builds on the GPU that an engine is for, and there is none here"):
        check_machine(choose_target("tensorrt-11", "fp16"), dataclasses.replace(SERVER, gpu=None), features(SERVER))


def test_tensorrt_builds_for_the_gpu_that_is_here_alone() -> None:
    check_machine(choose_target("tensorrt-11", "fp16"), SERVER, features(SERVER))
    other = choose_target("tensorrt-11", "fp16", compute_capabilities=["9.0"])
    with pytest.raises(TargetError, match="of compute capability 8.9, and this is to be for 9.0"):
        check_machine(other, SERVER, features(SERVER))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="it is for machines that are no board")
def test_an_engine_for_a_board_is_built_on_the_board() -> None:
    orin = choose_target("jetson-orin-jp6", "fp16")
    with pytest.raises(TargetError, match=f"is for linux-aarch64, and this is {this_platform()}"):
        check_machine(orin, dataclasses.replace(SERVER, version="10.3.0.26", gpu="8.7"), features(SERVER))


# Memory


def test_a_build_that_cannot_fit_is_refused_with_both_numbers() -> None:
    need = memory.needed(500_000_000)
    memory.check("an engine", 500_000_000, need)
    memory.check("an engine", 500_000_000, None)
    with pytest.raises(NotEnoughMemoryError) as caught:
        memory.check("an engine", 500_000_000, 900_000_000)
    assert f"needs about {need / 1e9:.1f} GB of memory and 0.9 GB is free" in str(caught.value)


def test_free_memory_is_the_machines_or_what_the_container_has_left(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       16000000 kB\nMemFree:         100 kB\nMemAvailable:    8000000 kB\n")
    assert memory.available(meminfo, tmp_path) == 8_000_000 << 10
    (tmp_path / "memory.current").write_text("1000000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available(meminfo, tmp_path) == 8_000_000 << 10
    (tmp_path / "memory.max").write_text("5000000\n")
    assert memory.available(meminfo, tmp_path) == 4_000_000
    assert memory.available(tmp_path / "nowhere", tmp_path / "nowhere") is None


def test_the_peak_is_the_most_that_the_system_saw(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("VmPeak:\t 90000 kB\nVmHWM:\t   7000 kB\nVmRSS:\t   5000 kB\n")
    assert memory.peak(status) == 7000 << 10
    assert memory.peak() > 10 << 20
