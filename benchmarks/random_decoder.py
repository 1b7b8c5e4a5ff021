"""Bundles of LLaMA-shaped models with random weights: how fast they are does not depend on what they know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import onnx_ir as ir
import torch

from edgeformer.exporter import ort_cpu
from edgeformer.exporter.external_weights import load_graph, save_graphs
from edgeformer.exporter.onnx_graphs import export_graphs, sizes_of
from edgeformer.exporter.ort_cpu.traits import least_version, needs_empty_caches
from edgeformer.exporter.records import PORTABLE, record_files
from edgeformer.models.configs.llama import LlamaConfig
from edgeformer.models.configs.rope import Rope, plain_frequencies
from edgeformer.models.llama import Llama
from edgeformer.runtime.bundle import MANIFEST, Artifact, Manifest, Tokens


def llama(d_model: int, num_layers: int, heads: tuple[int, int], d_ff: int, vocab_size: int) -> LlamaConfig:
    """A shape; `heads` are those of queries, and of keys and values."""
    head_dim = d_model // heads[0]
    return LlamaConfig(
        vocab_size=vocab_size, d_model=d_model, num_layers=num_layers, num_heads=heads[0], num_kv_heads=heads[1],
        head_dim=head_dim, d_ff=d_ff, max_positions=8192, rope=Rope(plain_frequencies(head_dim, 1e5)),
        windows=(None,) * num_layers, tied=True,
    )  # fmt: skip


SHAPES = {
    "135m": llama(576, 30, (9, 3), 1536, 49152),
    "tiny": llama(64, 2, (4, 2), 96, 512),
}


def write_bundle(folder: Path, shape: str, precisions: Sequence[str], progress: Callable[[str], None]) -> None:
    """Write a bundle with an artifact of ort-cpu for each precision, verified against nothing."""
    torch.manual_seed(0)
    progress("making random weights")
    with torch.no_grad():
        model = Llama(SHAPES[shape]).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.02)
    progress("exporting the step graph")
    graphs = export_graphs(model)
    artifacts = [write(folder, PORTABLE, "fp32", graphs)]
    for precision in precisions:
        progress(f"rewriting for ort-cpu in {precision}")
        graph = load_graph(folder / PORTABLE / "decoder.onnx")
        beside = ort_cpu.rewrite(graph, precision)
        artifacts.append(write(folder, f"ort-cpu-{precision}", precision, {"decoder": graph, **beside}))
    manifest = Manifest(
        edgeformer_version=version("edgeformer"), model_type="llama", kind="decoder", sizes=sizes_of(model),
        tokens=Tokens(pad=0, start=0, ends=()), files={}, artifacts=tuple(artifacts), golden=(),
    )  # fmt: skip
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def write(folder: Path, name: str, precision: str, graphs: dict[str, ir.Model]) -> Artifact:
    (folder / name).mkdir(parents=True)
    save_graphs(folder / name, graphs)
    return Artifact(
        name=name, target=name.removesuffix(f"-{precision}"), backend="ort-cpu", precision=precision,
        graphs={role: f"{name}/{role}.onnx" for role in graphs}, files=record_files(folder, folder / name),
        versions={}, needs={"onnxruntime": least_version(graphs.values())},
        long_steps_need_empty_caches=needs_empty_caches(graphs),
    )  # fmt: skip
