"""Which attentions of a network are fused, and why one is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeformer.exporter.tensorrt.report import LogLine


def explain_failure(
    trt: Any, network: Any, onnx_path: Path, log: Sequence[LogLine], compute_capabilities: Sequence[str]
) -> str | None:
    """Why a build failed, where it is for an attention that has no kernel of its own; otherwise None.

    One line: the attention (its ONNX node and its module), its shape and type, the reason, and what would fuse.

    Args:
        trt: `tensorrt` or `tensorrt_rtx`.
        network: the `INetworkDefinition` whose build failed, still alive.
        onnx_path: the graph that it was parsed from; its weights are not read.
        log: every line that was logged.
        compute_capabilities: GPUs that it was to be built for, such as 8.9; none for the one that is here.
    """
    raise NotImplementedError
