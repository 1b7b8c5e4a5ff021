"""Kernels compiled for GPUs that are not here."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from edgeformer.exporter.kernels import compiling
from edgeformer.exporter.kernels.ahead_of_time import without_scratch
from edgeformer.exporter.kernels.resources import blocks_that_fit, occupancy
from edgeformer.runtime.errors import BackendUnavailableError, TargetError
from edgeformer.runtime.plugins.kernels import DECODE, MERGE, PREFILL, SHORT, Kernel, read_kernels

from .conftest import CACHED_FP16

Compiled = tuple[Path, list[Kernel]]


@pytest.mark.parametrize("form", [PREFILL, DECODE])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("compute_capability", ["8.7", "8.9"])
def test_nothing_spills_on_orin_and_ada(form: str, head_dim: int, compute_capability: str) -> None:
    pytest.importorskip("triton")
    variant = dataclasses.replace(CACHED_FP16, head_dim=head_dim, scale=head_dim**-0.5)
    kernel = compiling.compile_kernel(variant, form, compute_capability).kernel
    assert kernel.local == 0
    assert 0 < kernel.registers <= 255


def test_every_form_is_compiled_and_the_folder_says_so(compiled: Compiled) -> None:
    folder, kernels = compiled
    assert read_kernels(folder) == tuple(kernels)
    forms = [(kernel.form, kernel.compute_capability, kernel.is_portable) for kernel in kernels]
    assert forms[:3] == [(form, "8.7", False) for form in (PREFILL, DECODE, MERGE)]
    assert forms[3:] == [(form, "8.0", True) for form in (PREFILL, DECODE, MERGE, SHORT)]
    assert {path.name for path in folder.iterdir()} == {"kernels.json", *(kernel.file for kernel in kernels)}


def test_arguments_stand_as_the_kernel_declares_them(compiled: Compiled) -> None:
    folder, kernels = compiled
    for kernel in kernels[3:]:
        declared = [line for line in (folder / kernel.file).read_text().splitlines() if line.startswith("\t.param ")]
        assert ["int32" if ".u32" in line else "pointer" for line in declared] == [kind for _, kind in kernel.arguments]
    names = [name for name, _ in kernels[0].arguments]
    assert names[:8] == [
        "query_ptr", "key_ptr", "value_ptr", "past_key_ptr", "past_value_ptr", "lengths_ptr", "q_len", "capacity",
    ]  # fmt: skip
    assert names[8:] == ["out_ptr", "present_key_ptr", "present_value_ptr", "global_scratch", "profile_scratch"]


def test_machine_code_is_for_the_gpu_that_was_asked_for_and_names_no_path(compiled: Compiled) -> None:
    folder, kernels = compiled
    triton = compiling.load_triton()
    for kernel in kernels[:3]:
        tool = [triton.knobs.nvidia.cuobjdump.path, "-lelf", folder / kernel.file]
        assert "sm_87" in subprocess.run(tool, capture_output=True, text=True, check=True).stdout
    for path in folder.iterdir():
        assert str(Path(compiling.__file__).parent).encode() not in path.read_bytes()


def test_portable_code_is_what_old_drivers_read(compiled: Compiled) -> None:
    folder, kernels = compiled
    text = (folder / kernels[3].file).read_text()
    assert ".version 8.0" in text
    assert ".target sm_80\n" in text


def test_portable_code_without_scratch_pointers_still_assembles(compiled: Compiled, tmp_path: Path) -> None:
    folder, kernels = compiled
    whole = (folder / kernels[-1].file).read_text()
    path = tmp_path / "kernel.ptx"
    path.write_text(without_scratch(whole, kernels[-1].entry))
    assert path.read_text().count("\t.param ") == whole.count("\t.param ") - 2
    tool = [compiling.load_triton().knobs.nvidia.ptxas.path, "--gpu-name=sm_87", path, "-o", tmp_path / "kernel.cubin"]
    assert subprocess.run(tool, capture_output=True, text=True).returncode == 0


def test_a_kernel_that_uses_its_scratch_pointers_is_refused() -> None:
    ptx = (
        ".visible .entry k(\n\t.param .u64 k_param_0,\n\t.param .u64 k_param_1\n)\n{ ld.param.b64 %rd1, [k_param_1]; }"
    )
    with pytest.raises(TargetError, match="needs scratch memory"):
        without_scratch(ptx, "k")


@pytest.mark.parametrize(
    ("changes", "capability", "reason"),
    [
        ({"head_dim": 144}, "8.7", "16 to 128 in multiples of 8"),
        ({"head_dim": 20}, "8.7", "16 to 128 in multiples of 8"),
        ({"dtype": "int8"}, "8.7", "take float16, bfloat16, float32"),
        ({"num_kv_heads": 3}, "8.7", "num_heads is not a multiple of num_kv_heads"),
        ({}, "7.0", "not made for compute capability 7.0; known: 7.5"),
        ({"dtype": "bfloat16"}, "7.5", "compute capability 7.5 has no bfloat16"),
    ],
)
def test_what_the_kernels_do_not_take_is_refused_before_anything_is_written(
    tmp_path: Path, changes: dict[str, object], capability: str, reason: str
) -> None:
    variant = dataclasses.replace(CACHED_FP16, **changes)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match=reason):
        compiling.write_kernels(tmp_path / "kernels", [variant], [capability])
    assert not list(tmp_path.iterdir())


def test_without_triton_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(BackendUnavailableError, match="pip install 'triton"):
        compiling.write_kernels(tmp_path, [CACHED_FP16], ["8.7"])


def test_occupancy_is_what_the_scarcest_resource_allows() -> None:
    # sm_87: 65536 registers, 48 warps, 164 KiB. 128 registers of 4 warps: 16384 a block, so 4 blocks of 4 warps.
    assert blocks_that_fit("8.7", 4, 16 * 1024, 128) == 4
    assert occupancy("8.7", 4, 16 * 1024, 128) == 16 / 48
    assert blocks_that_fit("8.9", 4, 40 * 1024, 32) == 2  # 100 KiB hold two blocks of 41
    assert blocks_that_fit("8.6", 2, 0, 16) == 16  # as many blocks as it can count
