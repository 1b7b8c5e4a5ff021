"""What the process that builds is told, and what it answers: JSON, so that neither side unpickles anything."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from edgeformer.exporter.tensorrt.profiles import Profile, Shapes


@dataclasses.dataclass(frozen=True, slots=True)
class BuildRequest:
    """One engine to build.

    Attributes:
        module: `tensorrt` or `tensorrt_rtx`.
        role: `encoder` or `decoder`.
        graph: path of the ONNX graph, its weights beside it.
        plan: path of the file to write.
        shapes: of every input, for each profile in the engine's order.
        profiles: the same as limits of symbolic dimensions, for the report.
        compute_capabilities: GPUs to build for, such as 8.9; none for the one that is here.
        flags: names of `BuilderFlag`.
        hardware_compatibility: name of a `HardwareCompatibilityLevel`.
        workspace: the most memory that a layer may use for itself, in bytes.
        opt_level: 0 to 5.
        timing_cache: path of a file of measured timings.
        kernels: folder of the kernels of our own operators, where the graph has them.
        ahead_of_time: whether the engine is to carry those kernels itself.
        versions: packages that took part, for the report.
    """

    module: str
    role: str
    graph: str
    plan: str
    shapes: tuple[Mapping[str, Shapes], ...]
    profiles: tuple[Profile, ...]
    compute_capabilities: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    hardware_compatibility: str | None = None
    workspace: int | None = None
    opt_level: int | None = None
    timing_cache: str | None = None
    kernels: str | None = None
    ahead_of_time: bool = False
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> BuildRequest:
        values = json.loads(text)
        lists = {name: tuple(values[name]) for name in ("shapes", "profiles", "compute_capabilities", "flags")}
        return cls(**{**values, **lists})

    @property
    def settings(self) -> dict[str, str]:
        """What was asked of the builder, in words, for the report."""
        said = {
            "compute capabilities": ", ".join(self.compute_capabilities) or "of the GPU that built it",
            "flags": ", ".join(self.flags),
            "hardware compatibility": self.hardware_compatibility,
            "workspace": self.workspace,
            "optimization level": self.opt_level,
            "timing cache": self.timing_cache,
            "kernels of our own attention": "in the engine" if self.ahead_of_time else None,
        }
        return {name: str(value) for name, value in said.items() if value not in (None, "")}


@dataclasses.dataclass(frozen=True, slots=True)
class Installed:
    """What a machine has of a TensorRT module.

    Attributes:
        module: its name.
        version: such as 1.7.1.116.
        gpu: compute capability of the first GPU, such as 8.9; None where there is no driver, or no GPU.
    """

    module: str
    version: str
    gpu: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Built:
    """A plan that was written.

    Attributes:
        seconds: how long parsing and building took.
        peak: bytes that the process held at most.
        report: what `describing.describe` said, as `dataclasses.asdict` makes it.
    """

    seconds: float
    peak: int
    report: Mapping[str, Any]
