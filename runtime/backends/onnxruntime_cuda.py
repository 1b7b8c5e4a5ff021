"""ONNX Runtime on NVIDIA GPUs: the steps of the CPU backend, with caches that stay on the GPU.

Built, not run: no GPU has run it yet. Everything but the CUDA kernels is tested with the same buffers on the CPU.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Ints, older
from edgeformer.runtime.backends.onnxruntime_sessions import CPU, Binding, Sessions, installed_version
from edgeformer.runtime.backends.onnxruntime_steps import GraphExecutor, SteppingRows
from edgeformer.runtime.backends.tensorrt.driver import NO_DRIVER, NO_GPU
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.errors import BackendUnavailableError

if TYPE_CHECKING:
    import onnxruntime

CUDA = "CUDAExecutionProvider"
FIRST_CAPACITY = 64  # a GPU's kernels cost by each row's length; growing costs a copy through the host
WITHOUT_CUDA = (
    "the onnxruntime here is built without CUDA; pip uninstall onnxruntime, then pip install 'edgeformer[gpu]'"
)
NOT_STARTED = (
    "onnxruntime's CUDA provider does not start here: it needs the CUDA and cuDNN libraries of its release notes; pip "
    "install 'onnxruntime-gpu[cuda,cudnn]'"
)


class OnnxRuntimeCuda:
    """Backend `ort-cuda`."""

    name = "ort-cuda"

    def unavailable(self, artifact: Artifact | None = None) -> str | None:
        if not find_spec("onnxruntime"):
            return "onnxruntime-gpu is not installed; pip install 'edgeformer[gpu]'"
        if not has_cuda_provider():
            return WITHOUT_CUDA
        least = artifact.needs.get("onnxruntime") if artifact else None
        installed = installed_version()
        if least and installed and older(installed, least):
            return f"it needs onnxruntime {least}, {installed} is installed; pip install 'onnxruntime-gpu>={least}'"
        return why_no_gpu()

    def load(self, bundle: Bundle, artifact: Artifact, cores: Cores) -> CudaExecutor:
        return CudaExecutor(bundle, artifact, cores)


def has_cuda_provider() -> bool:
    """Whether the onnxruntime that is installed brings the CUDA provider, found without importing it."""
    spec = find_spec("onnxruntime")
    folders = spec.submodule_search_locations if spec else None
    return any(any(Path(folder, "capi").glob("*onnxruntime_providers_cuda*")) for folder in folders or ())


def why_no_gpu() -> str | None:
    """Why there is no GPU to run on, None if there is one; asks the driver, and needs no package."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return NO_DRIVER
    count = ctypes.c_int()
    found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    return None if found else NO_GPU


class CudaExecutor(GraphExecutor):
    """The graphs of an artifact on a device.

    Args:
        device: `cuda`; `cpu` runs the same on ONNX Runtime's CPU kernels, to test it.

    Raises:
        BackendUnavailableError: ONNX Runtime cannot start its CUDA provider.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact, cores: Cores, device: str = "cuda") -> None:
        if device == "cuda":
            find_libraries()
        # Each run ends with its stream synchronized, so that what one session wrote another one can read.
        sessions = Sessions(bundle, artifact, cores, providers_of(device))
        super().__init__(bundle, artifact, sessions, device)
        self.selection = sessions.open("selection")
        if device == "cuda" and CUDA not in self.decoder.get_providers():
            raise BackendUnavailableError(NOT_STARTED)

    def start(self, sources: Sequence[Sequence[int]], capacity: int) -> CudaRows:
        lengths = np.array([len(source) for source in sources], np.int64)
        return CudaRows(self, len(sources), capacity, lengths, self.encode_there(sources, lengths))

    def start_empty(self, batch: int, capacity: int) -> CudaRows:
        return CudaRows(self, batch, capacity, np.empty(0, np.int64), [])

    def encode_there(self, sources: Sequence[Sequence[int]], lengths: Ints) -> list[onnxruntime.OrtValue]:
        """Keys and values of each layer on the device, (batch, num_heads, longest source, head_dim) each."""
        binding = Binding(self.sessions["encoder"])
        binding.inputs({names.INPUT_IDS: self.padded(sources, lengths), names.SOURCE_LENGTHS: lengths})
        binding.new_outputs(names.encoded_names(self.sizes), self.device)
        binding.run()
        return binding.made()

    def pick(self, values: Sequence[onnxruntime.OrtValue], rows: Ints) -> list[onnxruntime.OrtValue]:
        """These rows of each, copied on the device."""
        binding = Binding(self.selection)
        binding.inputs(dict(zip(names.past_names(self.sizes), values, strict=True)))
        binding.inputs({names.SELECTED: np.ascontiguousarray(rows, np.int64)})
        binding.new_outputs(names.present_names(self.sizes), self.device)
        binding.run()
        return binding.made()

    def place(self, array: np.ndarray[Any, Any]) -> onnxruntime.OrtValue:
        """A copy on the device."""
        import onnxruntime

        return onnxruntime.OrtValue.ortvalue_from_numpy(array, self.device, 0)


def providers_of(device: str) -> list[Any]:
    """What runs the operators; the CPU takes those that CUDA does not have, and ids and shapes."""
    on_gpu = [(CUDA, {"arena_extend_strategy": "kSameAsRequested"})]
    return [*(on_gpu if device == "cuda" else []), CPU]


def find_libraries() -> None:
    """Let ONNX Runtime find CUDA and cuDNN where pip put them.

    Raises:
        BackendUnavailableError: it is built without CUDA.
    """
    import onnxruntime

    if CUDA not in onnxruntime.get_available_providers():
        raise BackendUnavailableError(WITHOUT_CUDA)
    if hasattr(onnxruntime, "preload_dlls"):  # since 1.21
        onnxruntime.preload_dlls()


class CudaRows(SteppingRows):
    """Rows whose caches and sources are buffers on a device; ids go there and logits come back at each step."""

    caches: list[onnxruntime.OrtValue]
    encoded: list[onnxruntime.OrtValue]

    def __init__(
        self,
        executor: CudaExecutor,
        batch: int,
        limit: int,
        source_lengths: Ints,
        encoded: list[onnxruntime.OrtValue],
    ) -> None:
        super().__init__(executor, batch, source_lengths, limit, min(limit, FIRST_CAPACITY))
        self.device, self.encoded = executor, encoded
        sizes = executor.sizes
        shape = (batch, sizes.num_kv_heads, self.capacity, sizes.head_dim)
        # Zeros, since what a kernel reads behind a row's length must be finite.
        self.caches = [executor.place(np.zeros(shape, executor.dtype)) for _ in range(2 * sizes.num_layers)]

    def give_caches(self) -> None:
        self.caches, self.encoded = [], []

    def reserve(self, length: int) -> None:
        """Make room for rows of this many tokens; what they hold goes through the host, a few times in all."""
        capacity, self.capacity = self.capacity, self.next_capacity(length)
        grown = []
        for value in self.caches:
            held = value.numpy()
            array = np.zeros((*held.shape[:2], self.capacity, held.shape[3]), held.dtype)
            array[:, :, :capacity] = held
            grown.append(self.device.place(array))
        self.caches = grown

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        if sources is not None and self.executor.sizes.has_source:
            self.encoded = self.device.pick(self.encoded, sources)
            self.source_lengths = self.source_lengths[sources]
        if len(rows) != len(self.cache_lengths) or np.any(rows != np.arange(len(rows))):
            self.caches = self.device.pick(self.caches, rows)
            self.cache_lengths = self.cache_lengths[rows]
            self.longest = int(self.cache_lengths.max())
