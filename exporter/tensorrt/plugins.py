"""Attention of our own in an engine: the kernels that it launches go beside the plan, or into it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from edgeformer.exporter.kernels.ahead_of_time import PluginModule, define_plugins
from edgeformer.exporter.kernels.compiling import write_kernels
from edgeformer.exporter.targets.rows import AHEAD_OF_TIME, PLUGIN
from edgeformer.exporter.tensorrt.attention_plugin import DOMAIN
from edgeformer.exporter.tensorrt.requests import BuildRequest
from edgeformer.runtime.errors import BuildError
from edgeformer.runtime.plugins import register
from edgeformer.runtime.plugins.kernels import Variant

KERNELS = "kernels"  # folder of an artifact
OWN_FORMS = (PLUGIN, AHEAD_OF_TIME)
INSTEAD = f"take --attention {PLUGIN}, whose kernels lie beside the plan"


def write_plugin_kernels(
    folder: Path, graphs: Iterable[ir.Model], dtype: str, head_dim: int, compute_capabilities: Sequence[str]
) -> None:
    """Compile the kernels of every attention in graphs whose attention has the plugin's form.

    Raises:
        TargetError: a GPU or an attention that the kernels are not made for.
        BackendUnavailableError: Triton is not installed.
    """
    nodes = [node for graph in graphs for node in graph.graph if node.domain == DOMAIN]
    write_kernels(folder, {variant_of(node, dtype, head_dim): None for node in nodes}, compute_capabilities)


def offer_plugins(trt: Any, request: BuildRequest) -> None:
    """Let TensorRT find our operators, before a graph that has them is parsed.

    Raises:
        BuildError: the module has no ahead-of-time plugins here.
        BackendUnavailableError: it takes no plugins.
        BundleError: there are no kernels, or their index is damaged.
    """
    if request.kernels is None:
        return
    if request.ahead_of_time:
        define_plugins(quick_plugins(request.module), Path(request.kernels))
    else:
        register(trt, Path(request.kernels))


def quick_plugins(module: str) -> PluginModule:
    """`tensorrt.plugin`: it has what `define_plugins` calls from TensorRT 10.9 on."""
    name = f"{module}.plugin"
    try:
        found: PluginModule = importlib.import_module(name)
    except ImportError as error:
        raise BuildError(f"{name} cannot be imported: {error}; {INSTEAD}") from error
    if not hasattr(found, "aot_impl"):
        raise BuildError(f"{name} has no aot_impl, as before TensorRT 10.9; {INSTEAD}")
    return found


def variant_of(node: ir.Node, dtype: str, head_dim: int) -> Variant:
    attributes = node.attributes
    return Variant(
        operator=node.op_type,
        dtype=dtype,
        head_dim=head_dim,
        num_heads=attributes["num_heads"].as_int(),
        num_kv_heads=attributes["num_kv_heads"].as_int(),
        scale=attributes["scale"].as_float(),
        window=attributes["window"].as_int() if "window" in attributes else 0,
    )
