"""An artifact for ONNX Runtime on CPUs."""

from __future__ import annotations

from edgeformer.exporter import ort_cpu
from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.jobs import Job
from edgeformer.exporter.ort_cpu.recipes import recipes
from edgeformer.exporter.ort_cpu.traits import least_version, needs_empty_caches, shares_sources
from edgeformer.exporter.quantization_options import IN_BLOCKS
from edgeformer.exporter.records import versions
from edgeformer.runtime.bundle import Artifact


def make_ort_cpu(job: Job) -> Artifact:
    """Graphs for ONNX Runtime's CPU kernels.

    Raises:
        TargetError: a graph is not what the kernels take; texts were given for a model that does not generate.
        InputError: the calibration file cannot be used.
    """
    precision = job.choice.precision
    found = recipes(job, job.quantization) if precision in IN_BLOCKS else {}
    graphs = {role: job.graph(role) for role in job.portable.graphs}
    for role, graph in list(graphs.items()):
        with job.rewriting(role):
            graphs |= ort_cpu.rewrite(graph, precision, found.get(role))
    job.progress("writing")
    save_graphs(job.folder, graphs)
    return job.artifact(
        graphs,
        "onnx",
        versions("onnxruntime", "onnx-ir"),
        needs={"onnxruntime": least_version(graphs.values())},
        shared_sources=shares_sources(graphs),
        long_steps_need_empty_caches=needs_empty_caches(graphs),
    )
