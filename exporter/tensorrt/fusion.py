"""Why a build failed, where it failed for an attention that is not fused.

TensorRT's log says only that some attention had no kernel of its own. Which one, and what would have one, is found by
building each kind of attention alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from edgeformer.exporter.tensorrt.engine_layers import dtype_name
from edgeformer.exporter.tensorrt.module_paths import ModulePaths
from edgeformer.exporter.tensorrt.network_attentions import native_attentions
from edgeformer.exporter.tensorrt.network_tensors import symbolic_shapes
from edgeformer.exporter.tensorrt.probing import UNNAMED, Kind, has_kernel, kind_of
from edgeformer.exporter.tensorrt.report import LogLine
from edgeformer.runtime.bundle import Limits

Profile = Mapping[str, Limits]
Fuses = Callable[[Kind, Profile], bool]

NOT_FUSED = re.compile(r"is_decomposable\(\)\) failed|not supported by a dedicated kernel")
NO_TYPE = re.compile(r"Cannot compile for target\(s\) (.*?), because the model contains HW-specific datatypes: (\w+)")
TYPES = {"b16": "bfloat16", "f16": "float16", "f8": "float8", "f4": "float4"}  # the compiler's names


def explain_failure(
    trt: Any,
    network: Any,
    onnx_path: Path,
    log: Sequence[LogLine],
    compute_capabilities: Sequence[str],
    profiles: Sequence[Profile] = ({},),
) -> str | None:
    """Why a build failed, where it is for an attention that has no kernel of its own or for a type; otherwise None.

    One line: the attention (its ONNX node and its module), its type and sizes, and what would fuse.

    Args:
        trt: `tensorrt` or `tensorrt_rtx`.
        network: the `INetworkDefinition` whose build failed, still alive.
        onnx_path: the graph that it was parsed from; its weights are not read.
        log: every line that was logged.
        compute_capabilities: GPUs that it was to be built for, such as 8.9; none for the one that is here.
        profiles: least, usual and most of every symbolic dimension, in the engine's order.
    """
    for line in log:
        if match := NO_TYPE.search(line.text):
            return lacking_type(match[1], match[2])
    if not any(NOT_FUSED.search(line.text) for line in log):
        return None
    labels = labelled_kinds(trt, network, onnx.load(onnx_path, load_external_data=False))
    fuses = functools.partial(has_kernel, trt, network, compute_capabilities)
    unfused = {kind: [i for i, limits in enumerate(profiles) if not fuses(kind, limits)] for kind in labels}
    told = "; ".join(tell(kind, labels[kind], profiles, lost, fuses) for kind, lost in unfused.items() if lost)
    built_for = f" for {', '.join(compute_capabilities)}" if compute_capabilities else ""
    where = f"{trt.__name__} {trt.__version__}{built_for}"
    if not told:
        names = ", ".join(name for several in labels.values() for name in several)
        return f"an attention has no fused kernel in {where}, though each has one where it stands alone: {names}"
    return f"not every attention has a fused kernel in {where}: {told}; --allow-unfused makes it of slower parts"


def labelled_kinds(trt: Any, network: Any, model: onnx.ModelProto) -> dict[Kind, list[str]]:
    """Names of the attentions of each kind that may not fall apart, in the network's order."""
    paths, shapes = ModulePaths(model), symbolic_shapes(model)
    inputs = {node.name: [*node.input] for node in model.graph.node}
    labels: dict[Kind, list[str]] = {}
    for attention in native_attentions(trt, network):
        if not attention.decomposable:
            names = inputs.get(attention.name, [])
            module = paths.of(names[0]) if names else ""
            label = f"{module} ({attention.name})" if module else attention.name
            labels.setdefault(kind_of(trt, attention, shapes, names), []).append(label)
    return labels


def tell(kind: Kind, labels: Sequence[str], profiles: Sequence[Profile], lost: Sequence[int], fuses: Fuses) -> str:
    """`decoder_layers.0.attention (node_3): float16, 4 heads of 8, boolean mask, would fuse with head_dim 16`."""
    several = f" and {len(labels) - 1} more like it" if len(labels) > 1 else ""
    where = told_profiles(profiles, lost) if len(lost) < len(profiles) else ""
    fusing = [words for words, near in kind.nearby() if all(fuses(near, profiles[i]) for i in lost)]
    if not fusing:
        changes = nearby_profiles(profiles[lost[0]])
        fusing = [words for words, change in changes if all(fuses(kind, {**profiles[i], **change}) for i in lost)][:1]
    remedy = f"would fuse with {' or '.join(fusing)}" if fusing else "no type or size near it would fuse"
    return f"{labels[0]}{several}: {kind.describe()}{where}, {remedy}"


def told_profiles(profiles: Sequence[Profile], lost: Sequence[int]) -> str:
    limits = ", ".join(f"{name} {':'.join(map(str, each))}" for name, each in profiles[lost[0]].items())
    return f", in profile {', '.join(map(str, lost))} ({limits})"


def nearby_profiles(profile: Profile) -> Iterator[tuple[str, Profile]]:
    """Limits that might have a kernel: the one for a single query needs several heads and rows."""
    if profile.get("q_len", UNNAMED)[2] == 1:
        yield "q_len up to 2 there", {"q_len": (1, 1, 2)}
    least, usual, most = profile.get("batch", UNNAMED)
    for rows in (2, 4):
        if least < rows <= most:
            yield f"a batch of at least {rows}", {"batch": (rows, max(rows, usual), most)}


def lacking_type(targets: str, compiler_name: str) -> str:
    dtype = TYPES.get(compiler_name, dtype_name(compiler_name))
    capabilities = ", ".join(f"{sm[:-1]}.{sm[-1]}" for sm in re.findall(r"sm_?(\d+)", targets))
    return (
        f"{dtype} does not exist on compute capability {capabilities}: take another precision, or leave these GPUs out"
    )
