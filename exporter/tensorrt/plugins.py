"""Attention of our own in an engine: the kernels that it launches go beside the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import onnx_ir as ir

from edgeformer.exporter.kernels.compiling import write_kernels
from edgeformer.exporter.tensorrt.attention_plugin import DOMAIN
from edgeformer.runtime.plugins.kernels import Variant

KERNELS = "kernels"  # folder of an artifact


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
