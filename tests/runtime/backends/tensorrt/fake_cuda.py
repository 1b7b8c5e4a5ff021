"""A stand-in of the CUDA driver, as cuda-python's functions show it: its device is this process' memory.

Work on a stream waits until the stream is waited for, so that nothing is read too early unnoticed. A captured graph
does what was queued, again, on the same addresses. Fresh memory holds not-a-number, and nobody may touch what was not
allocated or was given back.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

ALIGNMENT = 256


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_STUB_LIBRARY = 34
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_UNKNOWN = 999


OK, UNSUPPORTED = Result.CUDA_SUCCESS, Result.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED


class Attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class Graph(list[Callable[[], None]]):
    """What was queued while a stream was captured."""

    alive = True


class Stream:
    def __init__(self) -> None:
        self.queue: list[Callable[[], None]] = []
        self.capture: Graph | None = None

    def __int__(self) -> int:
        return id(self)

    def add(self, work: Callable[[], None]) -> None:
        (self.queue if self.capture is None else self.capture).append(work)


class FakeCuda:
    """Everything that the backend calls; statuses come first in what a function returns, as cuda-python has it."""

    CUresult, CUdevice_attribute = Result, Attribute
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUmemorytype = SimpleNamespace(CU_MEMORYTYPE_DEVICE=2)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
    CUDA_MEMCPY3D = SimpleNamespace

    def __init__(
        self,
        *,
        capability: tuple[int, int] = (8, 9),
        memory: int = 1 << 30,
        devices: int = 1,
        integrated: bool = False,
        init: Result | Exception = OK,
    ) -> None:
        self.capability, self.memory, self.devices, self.init = capability, memory, devices, init
        self.integrated = integrated
        self.allocated: dict[int, np.ndarray[Any, Any]] = {}
        self.sizes: dict[int, int] = {}
        self.streams: dict[int, Stream] = {}
        self.downloaded = 0  # bytes that came to the host
        self.launches = self.captures = 0
        self.graphs = self.executables = 0  # that were not destroyed
        self.refuse_capture = False

    # The device

    def cuInit(self, flags: int) -> tuple[Result]:  # noqa: N802 - the driver's names
        if isinstance(self.init, Exception):
            raise self.init
        return (self.init,)

    def cuDeviceGetCount(self) -> tuple[Result, int]:  # noqa: N802
        return OK, self.devices

    def cuDeviceGet(self, ordinal: int) -> tuple[Result, int]:  # noqa: N802
        return OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> tuple[Result, bytes]:  # noqa: N802
        return OK, b"NVIDIA Pretence 4000".ljust(length, b"\0")

    def cuDeviceGetAttribute(self, which: Attribute, device: int) -> tuple[Result, int]:  # noqa: N802
        return OK, {18: int(self.integrated), 75: self.capability[0], 76: self.capability[1]}[which]

    def cuDriverGetVersion(self) -> tuple[Result, int]:  # noqa: N802
        return OK, 13000

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Result, str]:  # noqa: N802
        return OK, "context"

    def cuCtxSetCurrent(self, context: str) -> tuple[Result]:  # noqa: N802
        return (OK if context == "context" else Result.CUDA_ERROR_INVALID_CONTEXT,)

    def cuGetErrorString(self, status: Result) -> tuple[Result, bytes]:  # noqa: N802
        return OK, status.name.removeprefix("CUDA_ERROR_").lower().replace("_", " ").encode()

    # Memory

    @property
    def used(self) -> int:
        return sum(self.sizes.values())

    def cuMemGetInfo(self) -> tuple[Result, int, int]:  # noqa: N802
        return OK, self.memory - self.used, self.memory

    def cuMemAlloc(self, count: int) -> tuple[Result, int]:  # noqa: N802
        if self.used + count > self.memory:
            return Result.CUDA_ERROR_OUT_OF_MEMORY, 0
        address = self.take(count)
        self.sizes[address] = count
        return OK, address

    def cuMemAllocHost(self, count: int) -> tuple[Result, int]:  # noqa: N802
        return OK, self.take(count)

    def take(self, count: int) -> int:
        array = np.full(count + ALIGNMENT, 0xFF, np.uint8)
        address = -(-array.ctypes.data // ALIGNMENT) * ALIGNMENT
        self.allocated[address] = array[address - array.ctypes.data :][:count]
        return address

    def cuMemFree(self, address: int) -> tuple[Result]:  # noqa: N802
        for stream in self.streams.values():  # which waits for them
            self.cuStreamSynchronize(stream)
        del self.allocated[address], self.sizes[address]
        return (OK,)

    def cuMemFreeHost(self, address: int) -> tuple[Result]:  # noqa: N802
        del self.allocated[address]
        return (OK,)

    def check(self, address: int, count: int) -> None:
        for begin, array in self.allocated.items():
            if begin <= address and address + count <= begin + array.nbytes:
                return
        raise AssertionError(f"{count} bytes at {address:#x} are nobody's")

    def move(self, to: int, source: int, count: int) -> None:
        self.check(to, count)
        self.check(source, count)
        ctypes.memmove(to, source, count)

    def fill(self, address: int, value: int, count: int) -> None:
        self.check(address, count)
        ctypes.memset(address, value, count)

    # Streams

    def cuStreamCreate(self, flags: int) -> tuple[Result, Stream]:  # noqa: N802
        stream = Stream()
        self.streams[int(stream)] = stream
        return OK, stream

    def cuStreamSynchronize(self, stream: Stream) -> tuple[Result]:  # noqa: N802
        if stream.capture is not None:
            return (UNSUPPORTED,)
        queue, stream.queue = stream.queue, []
        for work in queue:
            work()
        return (OK,)

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: Stream) -> tuple[Result]:  # noqa: N802
        stream.add(lambda: self.fill(address, value, count))
        return (OK,)

    def cuMemcpyHtoDAsync(self, to: int, source: int, count: int, stream: Stream) -> tuple[Result]:  # noqa: N802
        stream.add(lambda: self.move(to, source, count))
        return (OK,)

    def cuMemcpyDtoHAsync(self, to: int, source: int, count: int, stream: Stream) -> tuple[Result]:  # noqa: N802
        def download() -> None:
            self.downloaded += count
            self.move(to, source, count)

        stream.add(download)
        return (OK,)

    def cuMemcpy3DAsync(self, copy: SimpleNamespace, stream: Stream) -> tuple[Result]:  # noqa: N802
        assert copy.WidthInBytes <= copy.srcPitch == copy.dstPitch
        assert copy.srcMemoryType == copy.dstMemoryType == 2
        for plane in range(copy.Depth):
            for line in range(copy.Height):
                to = copy.dstDevice + (plane * copy.dstHeight + line) * copy.dstPitch
                source = copy.srcDevice + (plane * copy.srcHeight + line) * copy.srcPitch
                stream.add(lambda to=to, source=source: self.move(to, source, copy.WidthInBytes))  # type: ignore[misc]
        return (OK,)

    # Graphs

    def cuStreamBeginCapture(self, stream: Stream, mode: int) -> tuple[Result]:  # noqa: N802
        if self.refuse_capture:
            return (UNSUPPORTED,)
        self.graphs += 1
        stream.capture = Graph()
        return (OK,)

    def cuStreamEndCapture(self, stream: Stream) -> tuple[Result, Graph | None]:  # noqa: N802
        graph, stream.capture = stream.capture, None
        return (OK, graph) if graph is not None else (UNSUPPORTED, None)

    def cuGraphInstantiate(self, graph: Graph, flags: int) -> tuple[Result, Graph]:  # noqa: N802
        self.captures += 1
        self.executables += 1
        return OK, Graph(graph)

    def cuGraphLaunch(self, graph: Graph, stream: Stream) -> tuple[Result]:  # noqa: N802
        assert graph.alive, "a graph is launched that was destroyed"
        self.launches += 1
        for work in graph:
            stream.add(work)
        return (OK,)

    def cuGraphDestroy(self, graph: Graph) -> tuple[Result]:  # noqa: N802
        self.graphs -= 1
        return (OK,)

    def cuGraphExecDestroy(self, graph: Graph) -> tuple[Result]:  # noqa: N802
        graph.alive = False
        self.executables -= 1
        return (OK,)
