"""An artifact for ONNX Runtime on CPUs."""

from __future__ import annotations

from edgeformer.exporter import ort_cpu
from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.jobs import Job
from edgeformer.exporter.ort_cpu.recipes import recipes
from edgeformer.exporter.ort_cpu.source_blocks import in_blocks, require_same
from edgeformer.exporter.ort_cpu.stored_half import DTYPES, StoredInHalf
from edgeformer.exporter.ort_cpu.traits import least_version, needs_empty_caches, shares_sources
from edgeformer.exporter.quantization_options import IN_BLOCKS
from edgeformer.exporter.records import versions
from edgeformer.runtime import names
from edgeformer.runtime.backends.onnxruntime_long_sources import SHORT
from edgeformer.runtime.bundle import Artifact


def make_ort_cpu(job: Job) -> Artifact:
    """Graphs for ONNX Runtime's CPU kernels.

    Raises:
        TargetError: a graph is not what the kernels take.
        InputError: the calibration file cannot be used.
        ParityError: the encoder for long sources does not give what the one for short sources gives.
    """
    precision = job.choice.precision
    found = recipes(job, job.quantization) if precision in IN_BLOCKS else {}
    graphs = {role: job.graph(role) for role in job.portable.graphs}
    for role, graph in list(graphs.items()):
        with job.rewriting(role):
            graphs |= ort_cpu.rewrite(graph, precision, found.get(role))
    sizes = job.bundle.manifest.sizes
    if "encoder" in graphs and (sizes.max_source_positions or sizes.max_positions) > SHORT:
        with job.rewriting("encoder"):
            if (long_encoder := in_blocks(graphs["encoder"])) is not None:
                graphs[names.LONG_ENCODER] = long_encoder
    for role, graph in graphs.items():
        with job.rewriting(role):
            ort_cpu.use_own_operators(graph, precision)
    if precision in DTYPES:
        for role, graph in graphs.items():
            with job.rewriting(role):
                StoredInHalf(precision)(graph)
    job.progress("writing")
    save_graphs(job.folder, graphs)
    if names.LONG_ENCODER in graphs:
        require_same(job.folder, sizes.source_vocab_size or sizes.vocab_size, precision)
    return job.artifact(
        graphs,
        "onnx",
        versions("onnxruntime", "onnx-ir"),
        needs={"onnxruntime": least_version(graphs.values())},
        shared_sources=shares_sources(graphs),
        long_steps_need_empty_caches=needs_empty_caches(graphs),
    )
