"""A build is described while its network is at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgeformer.exporter.tensorrt.report import BuildReport, LogLine
from edgeformer.runtime.bundle import Limits


def describe(
    trt: Any,
    network: Any,
    onnx_path: Path,
    *,
    role: str,
    log: Sequence[LogLine],
    seconds: float,
    plan_bytes: int,
    peak_memory: int | None,
    profiles: Sequence[Mapping[str, Limits]],
    settings: Mapping[str, str],
    versions: Mapping[str, str],
    engine: Any = None,
) -> BuildReport:
    """What became of a graph, after a build that succeeded.

    Args:
        trt: `tensorrt` or `tensorrt_rtx`.
        network: the `INetworkDefinition` that was built, still alive.
        onnx_path: the graph that it was parsed from; its weights are not read.
        role: `encoder` or `decoder`.
        log: every line that was logged during parsing and building.
        seconds: how long building took.
        plan_bytes: size of the plan.
        peak_memory: bytes that the process that built it held at most, where it is known.
        profiles: least, usual and most of every symbolic dimension, in the engine's order.
        settings: what was asked of the builder.
        versions: packages that took part.
        engine: the `ICudaEngine`, where a GPU could load it; its layers are listed then, with what the inspector says.
    """
    raise NotImplementedError
