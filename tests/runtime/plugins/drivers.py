"""A CUDA driver that writes down what it is asked for."""

from __future__ import annotations

import ctypes
import enum
from typing import Any


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_STUB_LIBRARY = 34
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
    CUDA_ERROR_INVALID_VALUE = 1


class DeviceAttribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class FunctionAttribute(enum.IntEnum):
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class RecordingDriver:
    """The functions of `cuda.bindings.driver` that a launch needs.

    Args:
        compute_capability: of the GPU, such as (8, 7).
        reads: the beginning of the code that its loader takes; it refuses any other.
    """

    CUresult, CUdevice_attribute, CUfunction_attribute = Result, DeviceAttribute, FunctionAttribute

    def __init__(self, compute_capability: tuple[int, int] = (8, 7), reads: bytes = b"") -> None:
        self.compute_capability, self.reads = compute_capability, reads
        self.calls: list[tuple[Any, ...]] = []
        self.context = 1

    def cuInit(self, flags: int) -> tuple[Result]:  # noqa: N802
        return (Result.CUDA_SUCCESS,)

    def cuCtxGetCurrent(self) -> tuple[Result, int]:  # noqa: N802
        return Result.CUDA_SUCCESS, self.context

    def cuCtxGetDevice(self) -> tuple[Result, int]:  # noqa: N802
        return Result.CUDA_SUCCESS, 0

    def cuDeviceGetAttribute(self, which: DeviceAttribute, device: int) -> tuple[Result, int]:  # noqa: N802
        major = which == DeviceAttribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        return Result.CUDA_SUCCESS, self.compute_capability[0 if major else 1]

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, ...]:  # noqa: N802
        if not code.startswith(self.reads):
            return (Result.CUDA_ERROR_NO_BINARY_FOR_GPU,)
        self.calls.append(("load", code))
        return Result.CUDA_SUCCESS, code

    def cuModuleGetFunction(self, module: bytes, name: bytes) -> tuple[Any, ...]:  # noqa: N802
        return Result.CUDA_SUCCESS, (module, name)

    def cuFuncSetAttribute(self, function: Any, which: FunctionAttribute, value: int) -> tuple[Result]:  # noqa: N802
        self.calls.append(("attribute", which.name, value))
        return (Result.CUDA_SUCCESS,)

    def cuLaunchKernel(self, function: Any, *arguments: Any) -> tuple[Result]:  # noqa: N802
        *sizes, stream, (values, types), extra = arguments
        assert extra == 0
        assert all(kind in (ctypes.c_void_p, ctypes.c_int) for kind in types)
        self.calls.append(("launch", function, tuple(sizes), stream, list(zip(values, types, strict=True))))
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyDtoDAsync(self, to: int, source: int, count: int, stream: int) -> tuple[Result]:  # noqa: N802
        self.calls.append(("copy", to, source, count, stream))
        return (Result.CUDA_SUCCESS,)
