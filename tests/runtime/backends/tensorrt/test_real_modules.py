"""The vendor's own modules: what they say here, and that the stand-ins have their calls."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from edgeformer.runtime.backends.tensorrt import driver, engines, fitness
from edgeformer.runtime.backends.tensorrt.driver import Device
from edgeformer.runtime.errors import BackendUnavailableError

from .fake_cuda import Attribute, FakeCuda, Result
from .fake_tensorrt import FakeContext, FakeEngine, FakeTensorRT


@pytest.fixture(scope="module")
def cuda() -> Any:
    return pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")


@pytest.fixture(params=["tensorrt_rtx", "tensorrt_lean"])
def module(request: pytest.FixtureRequest) -> Any:
    if not fitness.is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return importlib.import_module(request.param)


def has_driver() -> bool:
    return fitness.no_device() is None


# The driver's bindings


def test_every_call_has_as_many_arguments_as_the_real_one(cuda: Any) -> None:
    calls = [name for name in dir(FakeCuda) if re.match(r"cu[A-Z]", name)]
    assert len(calls) > 20
    for name in calls:
        heading = (getattr(cuda, name).__doc__ or "").splitlines()[0]
        real = [part for part in heading[heading.index("(") + 1 : -1].split(",") if part.strip()]
        assert len(inspect.signature(getattr(FakeCuda, name)).parameters) - 1 == len(real), heading


def test_every_constant_is_the_real_one(cuda: Any) -> None:
    for mine, real in ((Result, cuda.CUresult), (Attribute, cuda.CUdevice_attribute)):
        for member in mine:
            assert int(getattr(real, member.name)) == int(member)
    assert int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING) == 1
    assert int(cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE) == 2
    assert int(cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 1


def test_a_copy_of_boxes_fills_the_real_record(cuda: Any) -> None:
    asked: list[Any] = []

    class Recording(FakeCuda):
        CUDA_MEMCPY3D, CUmemorytype = cuda.CUDA_MEMCPY3D, cuda.CUmemorytype

        def cuMemcpy3DAsync(self, copy: Any, stream: Any) -> tuple[Result]:  # noqa: N802
            asked.append(copy)
            return (Result.CUDA_SUCCESS,)

    device = Device(Recording())
    with device.active():
        device.copy_box((4096, 7), (8192, 9), 512, (96, 2, 4))
    (copy,) = asked
    assert (int(copy.dstDevice), copy.dstHeight, int(copy.srcDevice), copy.srcHeight) == (4096, 7, 8192, 9)
    assert (copy.srcPitch, copy.dstPitch, copy.WidthInBytes, copy.Height, copy.Depth) == (512, 512, 96, 2, 4)
    assert copy.srcMemoryType == copy.dstMemoryType == cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE


def test_without_a_driver_it_says_so(cuda: Any) -> None:
    if has_driver():
        pytest.skip("there is a driver")
    with pytest.raises(BackendUnavailableError, match=r"^[^\n]*NVIDIA driver[^\n]*$"):
        driver.start_driver(cuda)


# TensorRT's


def test_the_classes_have_what_the_backend_calls(module: Any) -> None:
    for fake, real in ((FakeEngine, module.ICudaEngine), (FakeContext, module.IExecutionContext)):
        used = {name for name in vars(fake) if not name.startswith("_")} - {"compute", "bind"}
        assert [name for name in used if not hasattr(real, name)] == []
    for name in ("num_io_tensors", "device_memory_size_v2", "streamable_weights_size", "weight_streaming_budget_v2"):
        assert hasattr(module.ICudaEngine, name)
    assert hasattr(module.ICudaEngine, "get_aliased_input_tensor")
    assert hasattr(module.ExecutionContextAllocationStrategy, "USER_MANAGED")
    assert [name for name in engines.DATA_TYPES.values() if not hasattr(module.DataType, name)] == []
    stand_in = FakeTensorRT(FakeCuda(), module.__name__)
    for name in ("Refitter", "OnnxParserRefitter", "DynamicShapesKernelSpecializationStrategy"):
        assert hasattr(stand_in, name) <= hasattr(module, name)
    is_rtx = module.__name__ == "tensorrt_rtx"
    assert hasattr(module, "DynamicShapesKernelSpecializationStrategy") is is_rtx
    if is_rtx:
        for name in ("set_execution_context_allocation_strategy", "create_runtime_cache", "set_runtime_cache"):
            assert hasattr(module.IRuntimeConfig, name)


def test_a_logger_keeps_what_matters(module: Any) -> None:
    logger = engines.make_logger(module)
    for i in range(30):
        logger.log(module.Logger.WARNING, f"line {i} ")
    logger.log(module.Logger.INFO, "no news")
    logger.log(module.Logger.ERROR, "the worst")
    assert logger.lines[0] == "line 21"
    assert logger.lines[-1] == "the worst"
    assert len(logger.lines) == 10


def test_without_a_driver_an_engine_is_one_line_and_no_crash(module: Any) -> None:
    """In a process of its own: the lean runtime would end it if it were asked before the driver."""
    if has_driver():
        pytest.skip("there is a driver")
    script = (
        "from pathlib import Path\n"
        "from edgeformer.runtime.backends.tensorrt import TensorRT, fitness\n"
        "from edgeformer.runtime.bundle import Artifact, Engine\n"
        "from edgeformer.runtime.identity import this_platform\n"
        f"module, version = {module.__name__!r}, fitness.installed_version({module.__name__!r})\n"
        "lean = module == 'tensorrt_lean'\n"
        "engine = Engine('tensorrt' if lean else module, version, ('8.9',), this_platform(), {}, lean, False, False,\n"
        "                'float16', 8, {}, {})\n"
        "artifact = Artifact('a', 't', 'tensorrt', 'fp16', {}, {}, {}, {}, engine=engine)\n"
        "import json; print(json.dumps(TensorRT().unavailable(artifact)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    said = json.loads(done.stdout)
    assert said in (driver.NO_DRIVER, driver.NO_GPU)
