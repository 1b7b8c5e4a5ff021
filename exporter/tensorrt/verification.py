"""Whether a typed graph gives what PyTorch gave, on a machine that has neither a GPU nor TensorRT.

The graph is computed by ONNX Runtime in float32, each result rounded as the narrow type rounds it (see `rounded`), and
the plugin form's operators by standard ones (see `standard_attention`). So types, weights, caches and the wiring of
every attention are compared with the golden samples before an engine is built; kernels are not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, RemoveUnusedNodesPass

from edgeformer.exporter.artifact_checks import check_model
from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.parity import Check
from edgeformer.exporter.tensorrt.rounded import Rounded
from edgeformer.exporter.tensorrt.standard_attention import StandardAttention
from edgeformer.exporter.tensorrt.static_capacity import CAPACITY
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.encoders import EncoderModel
from edgeformer.runtime.model import Model


def verification_graph(model: ir.Model) -> ir.Model:
    """What ONNX Runtime can run of a graph that `graphs.rewrite` made, which stays as it is.

    Its inputs and outputs have the same names; those of the narrow type are float32, of numbers that the narrow type
    holds if the caches that go in are such; capacity is symbolic.
    """
    copy = model.clone()
    StandardAttention()(copy)
    Rounded()(copy)
    RemoveUnusedNodesPass()(copy)
    CommonSubexpressionEliminationPass()(copy)
    for value in (*copy.graph.inputs, *copy.graph.outputs):
        if (value.name or "").startswith(("past_key_values.", "present.")) and value.shape is not None:
            value.shape = ir.Shape([CAPACITY if axis == 2 else dim for axis, dim in enumerate(value.shape)])
    for node in copy.graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = None  # with the capacity of the engine in them
    return copy


def check_typed(
    bundle: Bundle, graphs: Mapping[str, ir.Model], precision: str, threads: int | None = None
) -> list[Check]:
    """Compare typed graphs with the bundle's golden samples, as `artifact_checks.check_model` compares an artifact.

    Args:
        bundle: what the graphs were made from.
        graphs: of each role, as `graphs.rewrite` left it; they are not changed.
        precision: of the artifact: it chooses the tolerance.
        threads: cores to use, None for all.

    Raises:
        BackendUnavailableError: ONNX Runtime is not installed, or too old for a graph of opset 24.
    """
    with tempfile.TemporaryDirectory(prefix="edgeformer-") as folder:
        standard = {role: verification_graph(graph) for role, graph in graphs.items()}
        newest = max(graph.opset_imports[""] for graph in standard.values())
        save_graphs(Path(folder), standard)
        artifact = Artifact(
            name=f"typed graphs, {precision}",
            target="typed graphs",
            backend="ort-cpu",
            precision=precision,
            graphs={role: str(Path(folder) / f"{role}.onnx") for role in graphs},
            files={},
            versions={},
            needs={"onnxruntime": "1.25" if newest > 21 else "1.23"},
        )
        kind = EncoderModel if bundle.manifest.kind == "encoder" else Model
        return check_model(kind(bundle, artifact, Cores(threads)))
