"""An artifact for ONNX Runtime on NVIDIA GPUs."""

from __future__ import annotations

import dataclasses

from edgeformer.exporter import ort_cuda
from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.jobs import Job
from edgeformer.exporter.ort_cpu.traits import least_version, needs_empty_caches, shares_sources
from edgeformer.exporter.parity import check_golden, require
from edgeformer.exporter.records import versions
from edgeformer.exporter.targets import check_model
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.errors import TargetError
from edgeformer.runtime.model import Model


def make_ort_cuda(job: Job) -> Artifact:
    """Graphs for ONNX Runtime's CUDA kernels, checked with its CPU kernels, which compute the same operators.

    Raises:
        TargetError: the model only reads; a graph or its heads are not what the kernels take.
        ParityError: the graphs do not give what PyTorch gave.
    """
    manifest = job.bundle.manifest
    if manifest.kind == "encoder":
        raise TargetError(f"target {job.choice.target.name} is for models that generate; for an encoder, take ort-cpu")
    sizes = manifest.sizes
    check_model(job.choice, sizes)
    graphs = {role: job.graph(role) for role in job.portable.graphs}
    for role, graph in list(graphs.items()):
        with job.rewriting(role):
            graphs |= ort_cuda.rewrite(graph)
    graphs["selection"] = ort_cuda.selection(sizes)
    job.progress("writing")
    save_graphs(job.folder, graphs)
    artifact = job.artifact(
        graphs,
        "onnx",
        versions("onnxruntime", "onnx-ir"),
        needs={"onnxruntime": least_version(graphs.values())},
        shared_sources=shares_sources(graphs),
        long_steps_need_empty_caches=needs_empty_caches(graphs),
    )
    job.progress("verifying the graphs on the CPU against PyTorch's golden samples")
    on_cpu = dataclasses.replace(artifact, backend="ort-cpu")
    checks = check_golden(
        Model(Bundle(job.folder.parent, job.bundle.manifest), on_cpu, Cores()), job.bundle.manifest.golden
    )
    checks = [dataclasses.replace(check, name=f"{check.name}, on the CPU") for check in checks]
    job.on_checks(checks)
    require(checks, f"artifact {artifact.name}")
    return artifact
