"""Launching kernels through the driver, which a recording one stands in for; and the real one, which is not here."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime.errors import BackendUnavailableError, BundleError, DeviceError
from edgeformer.runtime.plugins.attention import Extents, attend, workspace_bytes
from edgeformer.runtime.plugins.kernels import INDEX, PREFILL, Variant, read_kernels
from edgeformer.runtime.plugins.launching import Launcher, Loaded

from .conftest import CACHED_ATTENTION, SOURCE_ATTENTION, record
from .drivers import RecordingDriver

MakeFolder = Callable[..., Path]
INPUTS, OUTPUTS = [0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000], [0x7000, 0x4000, 0x5000]
SCRATCH, STREAM = 0x8000, 77
POINTER, INT32 = ctypes.c_void_p, ctypes.c_int


def launcher_of(folder: Path, driver: RecordingDriver) -> Launcher:
    launcher = Launcher(driver)
    launcher.add_folder(folder)
    return launcher


def test_prefill_is_one_launch_over_tiles_of_rows_with_arguments_in_their_order(make_folder: MakeFolder) -> None:
    driver = RecordingDriver()
    attend(
        launcher_of(make_folder("8.7"), driver), CACHED_ATTENTION, Extents(3, 33, 100), INPUTS, OUTPUTS, SCRATCH, STREAM
    )
    load, attribute, (_, function, sizes, stream, arguments) = driver.calls
    assert load == ("load", b"CachedAttention-float16-prefill-8.7.cubin")
    assert attribute == ("attribute", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 65536)
    assert function == (load[1], b"attention")
    # 33 queries of 2 heads that share keys: 66 rows, two tiles; 3 rows of 2 heads; 8 warps; shared memory.
    assert sizes == (2, 6, 1, 256, 1, 1, 65536)
    assert stream == STREAM
    pointers = [(address, POINTER) for address in INPUTS]
    numbers = [(33, INT32), (100, INT32)]
    made = [(address, POINTER) for address in OUTPUTS]
    assert arguments == [*pointers, *numbers, *made, (0, POINTER), (0, POINTER)]


def test_a_decode_step_splits_the_cache_and_merges_what_the_splits_found(make_folder: MakeFolder) -> None:
    driver = RecordingDriver()
    attend(
        launcher_of(make_folder("8.7"), driver), CACHED_ATTENTION, Extents(3, 1, 100), INPUTS, OUTPUTS, SCRATCH, STREAM
    )
    split, merge = [call for call in driver.calls if call[0] == "launch"]
    assert split[2] == (1, 6, 8, 128, 1, 1, 4096)
    stats = SCRATCH + 3 * 4 * 8 * 64 * 4  # behind a partial sum in float32 for every row, head and split
    assert [value for value, _ in split[4][8:12]] == [0x4000, 0x5000, SCRATCH, stats]
    assert merge[2] == (12, 1, 1, 128, 1, 1, 4096)
    assert [value for value, _ in merge[4]] == [SCRATCH, stats, 0x7000, 0, 0]
    assert workspace_bytes(CACHED_ATTENTION, Extents(3, 1, 100)) == stats - SCRATCH + 3 * 4 * 8 * 2 * 4


def test_the_workspace_of_the_largest_call_holds_every_smaller_one() -> None:
    largest = workspace_bytes(CACHED_ATTENTION, Extents(4, 50, 100))
    assert largest == max(workspace_bytes(CACHED_ATTENTION, Extents(4, q_len, 100)) for q_len in range(51))
    assert largest == 4 * 4 * 8 * 8 * 66 * 4  # 8 queries of 2 heads are the most that the decode form takes


def test_attention_to_a_source_reads_it_as_a_cache_and_writes_none(make_folder: MakeFolder) -> None:
    driver = RecordingDriver()
    launcher = launcher_of(make_folder("8.7"), driver)
    attend(launcher, SOURCE_ATTENTION, Extents(2, 40, 40), INPUTS[:4], OUTPUTS[:1], SCRATCH, STREAM)
    values = [value for value, _ in driver.calls[-1][4]]
    assert values == [*INPUTS[:4], 40, 40, 0x7000, 0, 0]


def test_a_cache_that_is_not_written_in_place_is_copied_before(make_folder: MakeFolder) -> None:
    driver, elsewhere = RecordingDriver(), [0x7000, 0x9000, 0xA000]
    launcher = launcher_of(make_folder("8.7"), driver)
    attend(launcher, CACHED_ATTENTION, Extents(3, 40, 100), INPUTS, elsewhere, SCRATCH, STREAM)
    size = 3 * 2 * 100 * 64 * 2
    assert driver.calls[:2] == [("copy", 0x9000, 0x4000, size, STREAM), ("copy", 0xA000, 0x5000, size, STREAM)]


@pytest.mark.parametrize("extents", [Extents(0, 4, 100), Extents(2, 0, 100)])
def test_nothing_to_compute_launches_nothing(make_folder: MakeFolder, extents: Extents) -> None:
    driver = RecordingDriver()
    attend(launcher_of(make_folder("8.7"), driver), CACHED_ATTENTION, extents, INPUTS, OUTPUTS, SCRATCH, STREAM)
    assert driver.calls == []


def test_a_kernel_is_loaded_once_in_each_context(make_folder: MakeFolder) -> None:
    driver = RecordingDriver()
    launcher = launcher_of(make_folder("8.7"), driver)
    for context in (1, 1, 2):
        driver.context = context
        launcher.load(CACHED_ATTENTION, PREFILL)
    assert [call[0] for call in driver.calls].count("load") == 2


@pytest.mark.parametrize(
    ("gpu", "loaded"),
    [((8, 7), b"prefill-8.7.cubin"), ((8, 9), b"prefill-8.9.cubin"), ((12, 0), b"prefill-8.0.ptx\0")],
)
def test_a_gpu_gets_its_own_machine_code_else_what_the_driver_compiles(
    make_folder: MakeFolder, gpu: tuple[int, int], loaded: bytes
) -> None:
    driver = RecordingDriver(gpu)
    launcher_of(make_folder("8.7", "8.9"), driver).load(CACHED_ATTENTION, PREFILL)
    assert driver.calls[0][1].endswith(loaded)


def test_machine_code_that_the_driver_refuses_gives_way_to_what_it_compiles(make_folder: MakeFolder) -> None:
    folder = make_folder("8.7")
    for kernel in read_kernels(folder):
        if kernel.is_portable:
            (folder / kernel.file).write_bytes(b"portable")
    driver = RecordingDriver(reads=b"portable")
    launcher_of(folder, driver).load(CACHED_ATTENTION, PREFILL)
    assert driver.calls[0] == ("load", b"portable\0")


def test_a_gpu_without_a_kernel_is_named_with_those_that_have_one(make_folder: MakeFolder) -> None:
    launcher = launcher_of(make_folder("8.7", "8.9", portable=False), RecordingDriver((7, 5)))
    with pytest.raises(DeviceError, match="runs on compute capability 7.5: kernels are there for 8.7, 8.9; optimize"):
        launcher.load(CACHED_ATTENTION, PREFILL)


def test_what_every_file_was_refused_for_is_said(make_folder: MakeFolder) -> None:
    launcher = launcher_of(make_folder("8.7"), RecordingDriver(reads=b"nothing like it"))
    with pytest.raises(DeviceError, match=r"prefill-8.7.cubin: .*CUDA_ERROR_NO_BINARY_FOR_GPU; .*prefill-8.0.ptx: "):
        launcher.load(CACHED_ATTENTION, PREFILL)


def test_a_kernel_of_another_window_is_not_taken(make_folder: MakeFolder) -> None:
    launcher = launcher_of(make_folder("8.7"), RecordingDriver())
    with pytest.raises(DeviceError, match="window 8"):
        launcher.load(Variant("CachedAttention", "float16", 64, 4, 2, 0.125, window=8), PREFILL)


def test_a_scale_may_differ_by_the_rounding_of_float32(make_folder: MakeFolder) -> None:
    launcher = launcher_of(make_folder("8.7"), RecordingDriver())
    near, far = 0.125 * (1 + 1e-7), 0.126
    assert launcher.load(Variant("CachedAttention", "float16", 64, 4, 2, near), PREFILL)
    with pytest.raises(DeviceError, match="scale 0.126"):
        launcher.load(Variant("CachedAttention", "float16", 64, 4, 2, far), PREFILL)


def test_a_missing_file_is_named(make_folder: MakeFolder) -> None:
    folder = make_folder("8.7")
    (folder / "CachedAttention-float16-prefill-8.7.cubin").unlink()
    with pytest.raises(BundleError, match="prefill-8.7.cubin cannot be read: No such file"):
        launcher_of(folder, RecordingDriver()).load(CACHED_ATTENTION, PREFILL)


def test_an_index_is_missing_damaged_or_too_new_in_one_line(make_folder: MakeFolder, tmp_path: Path) -> None:
    folder = make_folder("8.7")
    values = json.loads((folder / INDEX).read_text())
    for text, reason in (
        ("{", f"{INDEX} is damaged: JSONDecodeError"),
        (json.dumps({**values, "schema_version": 2}), "has schema 2, this edgeformer reads 1"),
        (json.dumps({**values, "kernels": [{}]}), "is damaged: KeyError"),
        (json.dumps({**values, "kernels": [{**values["kernels"][0], "file": "../a"}]}), "leads out of the folder"),
    ):
        (folder / INDEX).write_text(text)
        with pytest.raises(BundleError, match=reason):
            read_kernels(folder)
    with pytest.raises(BundleError, match="cannot be read: No such file"):
        read_kernels(tmp_path / "elsewhere")


@pytest.fixture
def real_bindings() -> Any:
    """cuda-python, on a machine without a driver."""
    bindings = pytest.importorskip("cuda.bindings.driver")
    try:
        bindings.cuInit(0)
    except (RuntimeError, ImportError):
        return bindings
    pytest.skip("there is a driver here")


def test_without_a_driver_the_real_bindings_give_one_line(make_folder: MakeFolder, real_bindings: Any) -> None:
    launcher = Launcher()
    launcher.add_folder(make_folder("8.7"))
    with pytest.raises(BackendUnavailableError, match="there is no NVIDIA driver here") as raised:
        launcher.load(CACHED_ATTENTION, PREFILL)
    assert "\n" not in str(raised.value)


def test_the_real_bindings_take_our_arguments_before_they_look_for_the_driver(real_bindings: Any) -> None:
    launcher, kernel = Launcher(), record(CACHED_ATTENTION, PREFILL)
    launcher.started = real_bindings
    loaded = Loaded(kernel, real_bindings.CUfunction(1), None)
    numbers = {name: 1 << 40 if kind == "pointer" else 7 for name, kind in kernel.arguments}
    for arguments, error in ((numbers, "NVIDIA"), ({**numbers, "q_len": "seven"}, "str")):
        with pytest.raises((RuntimeError, TypeError), match=error):
            launcher.launch(loaded, (1, 1, 1), arguments, STREAM)  # type: ignore[arg-type]
