"""Why a build failed, where it failed for an attention that is not fused.

TensorRT's log says only that some attention had no kernel of its own. Which one, and what would have one, is found by
building each kind of attention alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from edgeformer.exporter.tensorrt.engine_layers import dtype_name
from edgeformer.exporter.tensorrt.module_paths import ModulePaths
from edgeformer.exporter.tensorrt.network_attentions import native_attentions
from edgeformer.exporter.tensorrt.probing import Kind, has_kernel, kind_of
from edgeformer.exporter.tensorrt.report import LogLine

NOT_FUSED = re.compile(r"is_decomposable\(\)\) failed|not supported by a dedicated kernel")
NO_TYPE = re.compile(r"Cannot compile for target\(s\) (.*?), because the model contains HW-specific datatypes: (\w+)")
TYPES = {"b16": "bfloat16", "f16": "float16", "f8": "float8", "f4": "float4"}  # the compiler's names


def explain_failure(
    trt: Any,
    network: Any,
    onnx_path: Path,
    log: Sequence[LogLine],
    compute_capabilities: Sequence[str],
) -> str | None:
    """Why a build failed, where it is for an attention that has no kernel of its own or for a type; otherwise None.

    One line: the attention (its ONNX node and its module), its type and sizes, and what would fuse.

    Args:
        trt: `tensorrt` or `tensorrt_rtx`.
        network: the `INetworkDefinition` whose build failed, still alive.
        onnx_path: the graph that it was parsed from; its weights are not read.
        log: every line that was logged.
        compute_capabilities: GPUs that it was to be built for, such as 8.9; none for the one that is here.
    """
    for line in log:
        if match := NO_TYPE.search(line.text):
            return lacking_type(match[1], match[2])
    if not any(NOT_FUSED.search(line.text) for line in log):
        return None
    labels = labelled_kinds(trt, network, onnx.load(onnx_path, load_external_data=False))
    fuses = functools.partial(has_kernel, trt, network, compute_capabilities)
    unfused = [kind for kind in labels if not fuses(kind)]
    built_for = f" for {', '.join(compute_capabilities)}" if compute_capabilities else ""
    where = f"{trt.__name__} {trt.__version__}{built_for}"
    if not unfused:
        names = ", ".join(name for several in labels.values() for name in several)
        return f"an attention has no fused kernel in {where}, though each has one where it stands alone: {names}"
    told = "; ".join(tell(kind, labels[kind], fuses) for kind in unfused)
    return f"not every attention has a fused kernel in {where}: {told}; --allow-unfused makes it of slower parts"


def labelled_kinds(trt: Any, network: Any, model: onnx.ModelProto) -> dict[Kind, list[str]]:
    """Names of the attentions of each kind that may not fall apart, in the network's order."""
    paths = ModulePaths(model)
    queries = {node.name: node.input[0] for node in model.graph.node if node.input}
    labels: dict[Kind, list[str]] = {}
    for attention in native_attentions(trt, network):
        if not attention.decomposable:
            module = paths.of(queries[attention.name]) if attention.name in queries else ""
            label = f"{module} ({attention.name})" if module else attention.name
            labels.setdefault(kind_of(trt, attention), []).append(label)
    return labels


def tell(kind: Kind, labels: Sequence[str], fuses: Callable[[Kind], bool]) -> str:
    """`decoder_layers.0.attention (node_3): float16, 4 heads of 8, boolean mask, would fuse with head_dim 16`."""
    fusing = [words for words, near in kind.nearby() if fuses(near)]
    remedy = f"would fuse with {' or '.join(fusing)}" if fusing else "no type or size near it would fuse"
    several = f" and {len(labels) - 1} more like it" if len(labels) > 1 else ""
    return f"{labels[0]}{several}: {kind.describe()}, {remedy}"


def lacking_type(targets: str, compiler_name: str) -> str:
    dtype = TYPES.get(compiler_name, dtype_name(compiler_name))
    capabilities = ", ".join(f"{sm[:-1]}.{sm[-1]}" for sm in re.findall(r"sm_?(\d+)", targets))
    return (
        f"{dtype} does not exist on compute capability {capabilities}: take another precision, or leave these GPUs out"
    )
