"""The CUDA driver, through cuda-python: what the backend needs of it, with its errors as sentences.

A machine without a driver or GPU gets one line from `open_device`, never a crash: TensorRT's libraries are only called
once this module has found both.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.errors import BackendUnavailableError, DeviceError, NotEnoughMemoryError

MODULES = ("cuda.bindings.driver", "cuda.cuda")  # the second is cuda-python's before 12.6.1
NOT_INSTALLED = "cuda-python is not installed; pip install 'cuda-python'"
NO_DRIVER = "there is no NVIDIA driver here: install one, or run this on a machine with an NVIDIA GPU"
NO_GPU = "the NVIDIA driver finds no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's --gpus"
ALIGNMENT = 256  # bytes, of whatever TensorRT is given the address of


def load_cuda() -> Any:
    """The driver's bindings, whose import needs no driver.

    Raises:
        BackendUnavailableError: cuda-python is not installed.
    """
    for name in MODULES:
        try:
            if find_spec(name) is not None:
                return importlib.import_module(name)
        except ModuleNotFoundError:  # its parent is missing
            continue
    raise BackendUnavailableError(NOT_INSTALLED)


def aligned(count: int) -> int:
    """The next multiple of the alignment."""
    return -(-count // ALIGNMENT) * ALIGNMENT


class Device:
    """The first GPU that CUDA_VISIBLE_DEVICES shows, its primary context and one stream.

    Attributes:
        name: NVIDIA's name of it.
        compute_capability: such as 8.9.
        integrated: whether it shares its memory with the CPU, as a Jetson's does.
        driver_version: the CUDA version that the driver goes up to, such as 13.0.
        lock: held by whoever queues work on the stream; the backend's engines share their activations.
    """

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.lock = cuda, threading.RLock()
        start_driver(cuda)
        if self.call("cuDeviceGetCount") == 0:
            raise BackendUnavailableError(NO_GPU)
        self.handle = self.call("cuDeviceGet", 0)
        self.name = self.call("cuDeviceGetName", 256, self.handle).split(b"\0")[0].decode()
        attribute = cuda.CUdevice_attribute
        major = self.attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self.attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        self.compute_capability = f"{major}.{minor}"
        self.integrated = bool(self.attribute(attribute.CU_DEVICE_ATTRIBUTE_INTEGRATED))
        version = self.call("cuDriverGetVersion")
        self.driver_version = f"{version // 1000}.{version % 1000 // 10}"
        self.context: Any = None
        self.stream: Any = None

    def attribute(self, which: Any) -> int:
        return int(self.call("cuDeviceGetAttribute", which, self.handle))

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the driver.

        Returns:
            what it gives beside its status: nothing, a value, or several in a tuple.

        Raises:
            NotEnoughMemoryError: the GPU's memory is used up.
            DeviceError: anything else went wrong.
        """
        status, *values = getattr(self.cuda, name)(*arguments)
        if status != self.cuda.CUresult.CUDA_SUCCESS:
            raise self.failure(name, status)
        return values[0] if len(values) == 1 else tuple(values)

    def failure(self, name: str, status: Any) -> DeviceError | NotEnoughMemoryError:
        if status == self.cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return NotEnoughMemoryError(
                f"{name} found no memory left on the GPU: end other programs on it, or take smaller batches"
            )
        _, text = self.cuda.cuGetErrorString(status)
        said = text.decode() if isinstance(text, bytes) else str(text)
        return DeviceError(f"the CUDA driver failed in {name}: {said} ({getattr(status, 'name', status)})")

    @contextmanager
    def active(self) -> Iterator[None]:
        """Hold the stream, with the device's context current in this thread."""
        with self.lock:
            if self.context is None:
                self.context = self.call("cuDevicePrimaryCtxRetain", self.handle)
            self.call("cuCtxSetCurrent", self.context)
            if self.stream is None:
                non_blocking = self.cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
                self.stream = self.call("cuStreamCreate", int(non_blocking))
            yield

    def free_memory(self) -> tuple[int, int]:
        """Bytes that are free on the GPU, and that it has."""
        with self.active():
            free, total = self.call("cuMemGetInfo")
        return int(free), int(total)

    def synchronize(self) -> None:
        """Wait for everything that was queued."""
        self.call("cuStreamSynchronize", self.stream)

    def clear(self, address: int, count: int) -> None:
        """Queue zeros for so many bytes."""
        self.call("cuMemsetD8Async", address, 0, count, self.stream)

    def upload(self, address: int, host: int, count: int) -> None:
        self.call("cuMemcpyHtoDAsync", address, host, count, self.stream)

    def download(self, host: int, address: int, count: int) -> None:
        self.call("cuMemcpyDtoHAsync", host, address, count, self.stream)

    def copy_box(self, to: tuple[int, int], source: tuple[int, int], pitch: int, box: Sequence[int]) -> None:
        """Queue a copy between two arrays, each of planes of lines of `pitch` bytes.

        Args:
            to: address of the box's first byte in the one array, and how many lines each of its planes has.
            source: the same of the other.
            pitch: bytes from a line to the next, in both.
            box: bytes of each line, lines of each plane, planes.
        """
        copy = self.cuda.CUDA_MEMCPY3D()
        copy.srcMemoryType = copy.dstMemoryType = self.cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcPitch = copy.dstPitch = pitch
        copy.dstDevice, copy.dstHeight = to
        copy.srcDevice, copy.srcHeight = source
        copy.WidthInBytes, copy.Height, copy.Depth = box
        self.call("cuMemcpy3DAsync", copy, self.stream)


def start_driver(cuda: Any) -> None:
    """Initialize the driver.

    Raises:
        BackendUnavailableError: there is none, it is broken, or it finds no GPU.
    """
    try:
        (status,) = cuda.cuInit(0)
    except (
        RuntimeError,
        ImportError,
        OSError,
    ) as error:  # each version of cuda-python has its own for a missing library
        raise BackendUnavailableError(NO_DRIVER) from error
    if status == cuda.CUresult.CUDA_SUCCESS:
        return
    if status == cuda.CUresult.CUDA_ERROR_NO_DEVICE:
        raise BackendUnavailableError(NO_GPU)
    if status in (cuda.CUresult.CUDA_ERROR_STUB_LIBRARY, cuda.CUresult.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH):
        raise BackendUnavailableError(f"{NO_DRIVER} ({status.name})")
    raise BackendUnavailableError(f"the NVIDIA driver does not start: {getattr(status, 'name', status)}")


DEVICES: dict[int, Device] = {}  # by the bindings' identity: one device, stream and lock in a process
OPENING = threading.Lock()


def open_device() -> Device:
    """This process' GPU.

    Raises:
        BackendUnavailableError: cuda-python, the driver or a GPU is missing: one line says which.
    """
    cuda = load_cuda()
    with OPENING:
        if id(cuda) not in DEVICES:
            DEVICES[id(cuda)] = Device(cuda)
        return DEVICES[id(cuda)]


class DeviceMemory:
    """Bytes on the GPU, given back when they are closed or forgotten."""

    def __init__(self, device: Device, count: int) -> None:
        self.device, self.count = device, max(aligned(count), ALIGNMENT)
        self.address = int(device.call("cuMemAlloc", self.count))
        self.close = weakref.finalize(self, release, device, "cuMemFree", self.address)


class PinnedMemory:
    """Bytes of the host that the GPU copies from and to while the program goes on.

    Attributes:
        array: uint8 (count,), over the same bytes.
    """

    def __init__(self, device: Device, count: int) -> None:
        self.count = max(aligned(count), ALIGNMENT)
        self.address = int(device.call("cuMemAllocHost", self.count))
        buffer = (ctypes.c_uint8 * self.count).from_address(self.address)
        self.array: NDArray[np.uint8] = np.ctypeslib.as_array(buffer)
        self.close = weakref.finalize(self, release, device, "cuMemFreeHost", self.address)


class CapturedGraph:
    """An executable graph, destroyed when it is closed or forgotten."""

    def __init__(self, device: Device, graph: Any) -> None:
        self.device, self.handle = device, device.call("cuGraphInstantiate", graph, 0)
        self.close = weakref.finalize(self, release, device, "cuGraphExecDestroy", self.handle)

    def launch(self) -> None:
        """Queue all that was captured."""
        self.device.call("cuGraphLaunch", self.handle, self.device.stream)


def release(device: Device, function: str, handle: Any) -> None:
    """Give something back; a driver that is shutting down has done so already."""
    try:
        with device.active():
            device.call(function, handle)
    except DeviceError:
        return
