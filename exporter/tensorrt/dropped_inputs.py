"""Inputs that a parser takes and drops without a word."""

from __future__ import annotations

from typing import Any

import onnx


def unused_inputs(model: onnx.ModelProto, trt: Any, network: Any) -> list[str]:
    """Inputs of a graph that nothing in the parsed network reads, and inputs of nodes that were dropped in silence.

    Args:
        model: what was parsed; its weights need not be loaded.
        trt: `tensorrt` or `tensorrt_rtx`.
        network: the `INetworkDefinition` that the parser made of it, before anything was added.

    Returns:
        A sentence for each, such as "graph input lengths is read by nothing".
    """
    raise NotImplementedError
