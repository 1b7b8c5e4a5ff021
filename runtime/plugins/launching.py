"""Launching compiled kernels through the CUDA driver: neither a compiler nor torch is there.

A kernel is loaded into the current context when it is first launched: machine code for this GPU where there is some,
else PTX, which the driver compiles. A CUDA graph cannot be captured while a kernel is loaded; run once before.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeformer.runtime.backends.tensorrt.driver import load_cuda, start_driver
from edgeformer.runtime.errors import BundleError, DeviceError
from edgeformer.runtime.plugins.kernels import Kernel, Variant, candidates, read_kernels

Grid = tuple[int, int, int]
WARP = 32
DEFAULT_SHARED = 48 * 1024  # bytes; a kernel that takes more must say so
C_TYPES: Mapping[str, Any] = {"pointer": ctypes.c_void_p, "int32": ctypes.c_int}
SCRATCH = ("global_scratch", "profile_scratch")  # pointers that the compiler adds and our kernels do not use


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel in a context: `function` is the driver's handle of it."""

    kernel: Kernel
    function: Any
    module: Any  # kept: the function lives as long as it does


class Launcher:
    """Launches the kernels of any number of folders on the GPU whose context is current.

    Args:
        cuda: the driver's bindings; those of cuda-python where none are given, looked for at the first launch.
    """

    def __init__(self, cuda: Any = None) -> None:
        self.given = cuda
        self.started: Any = None
        self.kernels: dict[Path, tuple[Kernel, ...]] = {}
        self.loaded: dict[tuple[Variant, str, int], Loaded] = {}

    def add_folder(self, folder: Path) -> None:
        """Take a folder's kernels in.

        Raises:
            BundleError: its index is missing or damaged.
        """
        self.kernels[folder.resolve()] = read_kernels(folder)

    @property
    def cuda(self) -> Any:
        """The bindings, with the driver started.

        Raises:
            BackendUnavailableError: cuda-python, the driver or a GPU is missing.
        """
        if self.started is None:
            cuda = self.given or load_cuda()
            start_driver(cuda)
            self.started = cuda
        return self.started

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the driver for the one value that it gives, or none.

        Raises:
            DeviceError: it failed.
        """
        status, *values = getattr(self.cuda, name)(*arguments)
        if status != self.cuda.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"the CUDA driver failed in {name}: {getattr(status, 'name', status)}")
        return values[0] if values else None

    def compute_capability(self) -> str:
        """Of the current context's GPU, such as 8.7."""
        device, attribute = self.call("cuCtxGetDevice"), self.cuda.CUdevice_attribute
        major = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        minor = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        return ".".join(str(int(self.call("cuDeviceGetAttribute", which, device))) for which in (major, minor))

    def load(self, variant: Variant, form: str) -> Loaded:
        """The kernel of this form in the current context.

        Raises:
            DeviceError: no folder has one that this GPU and its driver take.
            BundleError: its file cannot be read.
        """
        key = (variant, form, int(self.call("cuCtxGetCurrent")))
        if key not in self.loaded:
            self.loaded[key] = self.load_first(variant, form)
        return self.loaded[key]

    def load_first(self, variant: Variant, form: str) -> Loaded:
        capability, refused = self.compute_capability(), []
        for folder, kernels in self.kernels.items():
            for kernel in candidates(kernels, variant, form, capability):
                try:
                    return self.load_file(folder / kernel.file, kernel)
                except DeviceError as error:
                    refused.append(f"{kernel.file}: {error}")
        known = sorted({kernel.compute_capability for kernels in self.kernels.values() for kernel in kernels})
        reason = "; ".join(refused) or f"kernels are there for {', '.join(known) or 'none'}"
        raise DeviceError(
            f"no {form} kernel of {variant} runs on compute capability {capability}: {reason}; optimize the bundle for "
            "a target that has this GPU"
        )

    def load_file(self, path: Path, kernel: Kernel) -> Loaded:
        try:
            code = path.read_bytes()
        except OSError as error:
            raise BundleError(f"kernels {path.parent}", [f"{path.name} cannot be read: {error.strerror}"]) from error
        module = self.call("cuModuleLoadData", code + b"\0" if kernel.is_portable else code)
        function = self.call("cuModuleGetFunction", module, kernel.entry.encode())
        if kernel.shared > DEFAULT_SHARED:
            most = self.cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", function, most, kernel.shared)
        return Loaded(kernel, function, module)

    def launch(self, loaded: Loaded, grid: Grid, arguments: Mapping[str, int], stream: int) -> None:
        """Queue a kernel.

        Args:
            grid: blocks in x, y and z.
            arguments: addresses and numbers by name; those that the kernel does not take are passed over.
            stream: the CUDA stream's handle.

        Raises:
            DeviceError: it could not be queued, or an argument is missing.
        """
        kernel = loaded.kernel
        given = {**dict.fromkeys(SCRATCH, 0), **arguments}
        if missing := [name for name, _ in kernel.arguments if name not in given]:
            raise DeviceError(f"kernel {kernel.file} takes {', '.join(missing)}, which this edgeformer does not give")
        values = tuple(given[name] for name, _ in kernel.arguments)
        types = tuple(C_TYPES[kind] for _, kind in kernel.arguments)
        block = (kernel.num_warps * WARP, 1, 1)
        self.call("cuLaunchKernel", loaded.function, *grid, *block, kernel.shared, stream, (values, types), 0)

    def copy(self, to: int, source: int, count: int, stream: int) -> None:
        """Queue a copy of so many bytes on the device."""
        self.call("cuMemcpyDtoDAsync", to, source, count, stream)
