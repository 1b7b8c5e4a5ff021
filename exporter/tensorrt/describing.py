"""A build is described while its network is at hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from edgeformer.exporter.tensorrt.dropped_inputs import unused_inputs
from edgeformer.exporter.tensorrt.engine_layers import inspected_layers, logged_layers
from edgeformer.exporter.tensorrt.network_attentions import find_attentions
from edgeformer.exporter.tensorrt.network_tensors import (
    cache_updates,
    network_inputs,
    network_layers,
    network_outputs,
    symbolic_shapes,
    weight_bytes,
)
from edgeformer.exporter.tensorrt.report import BuildReport, LogLine
from edgeformer.runtime.bundle import Limits

QUIET = ("verbose", "info")
MEMORY = re.compile(r"Total (Activation|Weights) Memory: (\d+) bytes")


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
    load_engine: Callable[[], Any] | None = None,
) -> BuildReport:
    """What became of a graph, after a build that succeeded.

    Args:
        trt: `tensorrt` or `tensorrt_rtx`.
        network: the `INetworkDefinition` that was built, still alive.
        onnx_path: the graph that it was parsed from; its weights are not read.
        role: `encoder` or `decoder`.
        log: every line that was logged during parsing and building, `verbose` ones too: with detailed profiling
            verbosity the builder tells the compiled engine's layers there, and so which kernel each attention got.
        seconds: how long building took.
        plan_bytes: size of the plan.
        peak_memory: bytes that the process that built it held at most, where it is known.
        profiles: least, usual and most of every symbolic dimension, in the engine's order.
        settings: what was asked of the builder.
        versions: packages that took part.
        load_engine: loads the plan, where there is a GPU for it: called where the log does not tell the layers.
    """
    model = onnx.load(onnx_path, load_external_data=False)
    shapes = symbolic_shapes(model)
    compiled = logged_layers(log) or (inspected_layers(trt, load_engine()) if load_engine is not None else ())
    peak = {} if peak_memory is None else {"build peak": peak_memory}
    return BuildReport(
        role=role,
        attentions=find_attentions(trt, network, model, compiled),
        cache_updates=cache_updates(network, shapes),
        layers=compiled or network_layers(network, shapes),
        compiled=bool(compiled),
        inputs=network_inputs(network, shapes),
        outputs=network_outputs(network, shapes),
        weights=weight_bytes(model),
        plan_bytes=plan_bytes,
        memory={**peak, **logged_memory(log)},
        seconds=seconds,
        profiles=tuple(profiles),
        settings=dict(settings),
        versions=dict(versions),
        unused_inputs=tuple(unused_inputs(model, trt, network)),
        log=tuple(dict.fromkeys(line for line in log if line.severity not in QUIET)),
    )


def logged_memory(log: Sequence[LogLine]) -> dict[str, int]:
    """Bytes that the log tells: `activations` of the profile that needs most, and `weights in the engine`."""
    names = {"Activation": "activations", "Weights": "weights in the engine"}
    memory: dict[str, int] = {}
    for line in log:
        if match := MEMORY.search(line.text):
            name = names[match[1]]
            memory[name] = max(memory.get(name, 0), int(match[2]))
    return memory
