"""The part of TensorRT that a build uses, as a type: `tensorrt` and `tensorrt_rtx` both have it.

The classes are those of the published stubs of `tensorrt`; what only some versions have is asked for by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import tensorrt


class TensorRT(Protocol):
    """The module, `tensorrt` or `tensorrt_rtx`."""

    @property
    def Builder(self) -> type[tensorrt.Builder]: ...  # noqa: N802
    @property
    def BuilderFlag(self) -> type[tensorrt.BuilderFlag]: ...  # noqa: N802
    @property
    def HardwareCompatibilityLevel(self) -> type[tensorrt.HardwareCompatibilityLevel]: ...  # noqa: N802
    @property
    def ILogger(self) -> type[tensorrt.ILogger]: ...  # noqa: N802
    @property
    def IProgressMonitor(self) -> type[tensorrt.IProgressMonitor]: ...  # noqa: N802
    @property
    def MemoryPoolType(self) -> type[tensorrt.MemoryPoolType]: ...  # noqa: N802
    @property
    def NetworkDefinitionCreationFlag(self) -> type[tensorrt.NetworkDefinitionCreationFlag]: ...  # noqa: N802
    @property
    def OnnxParser(self) -> type[tensorrt.OnnxParser]: ...  # noqa: N802
    @property
    def ProfilingVerbosity(self) -> type[tensorrt.ProfilingVerbosity]: ...  # noqa: N802
    @property
    def Runtime(self) -> type[tensorrt.Runtime]: ...  # noqa: N802
