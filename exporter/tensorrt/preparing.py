"""What engines are built from: graphs in the precision's types, verified, on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import cast

import onnx_ir as ir

from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.jobs import Job
from edgeformer.exporter.parity import require
from edgeformer.exporter.targets.rows import AHEAD_OF_TIME
from edgeformer.exporter.tensorrt import memory
from edgeformer.exporter.tensorrt.graphs import AttentionForm, DType, Weights, rewrite
from edgeformer.exporter.tensorrt.plugins import KERNELS, OWN_FORMS, write_plugin_kernels
from edgeformer.exporter.tensorrt.profiles import Solved
from edgeformer.exporter.tensorrt.requests import Installed
from edgeformer.exporter.tensorrt.unfused import allow_unfused
from edgeformer.exporter.tensorrt.verification import check_typed
from edgeformer.runtime.names import Dims

TYPES: dict[str, tuple[DType, Weights]] = {
    "fp16": ("float16", None),
    "bf16": ("bfloat16", None),
    "fp32": ("float32", None),
    "int8": ("float16", "int8"),
    "int4": ("float16", "int4"),
}
GRAPHS = "graphs"  # folder of the graphs that the engines are built from; it stays where weights are to be put back


def prepare(job: Job, solved: Solved, installed: Installed) -> dict[str, dict[str, Dims]]:
    """Write the graphs into the job's folder, and the kernels that they need; give the dimensions of their inputs.

    Raises:
        TargetError, NotEnoughMemoryError: they cannot be made, or built here.
        ParityError: they do not give what PyTorch gave.
    """
    graphs = typed_graphs(job, solved)
    free = memory.available()
    for role, graph in graphs.items():
        memory.check(f"the {role}'s engine", weight_bytes(graph), free)
    job.progress("writing the graphs that engines are built from")
    (job.folder / GRAPHS).mkdir()
    save_graphs(job.folder / GRAPHS, graphs)
    inputs = {role: input_dims(graph) for role, graph in graphs.items()}
    verify(job, graphs)
    if job.choice.attention in OWN_FORMS:
        job.progress("compiling the kernels of attention")
        gpus, head_dim = job.choice.compute_capabilities or (str(installed.gpu),), job.bundle.manifest.sizes.head_dim
        if job.choice.attention == AHEAD_OF_TIME:
            gpus = ()  # an engine carries the portable ones
        write_plugin_kernels(job.folder / KERNELS, graphs.values(), dtype_of(job), head_dim, gpus)
    for role in graphs if job.options.allow_unfused else ():
        allow_unfused(job.folder / GRAPHS / f"{role}.onnx")
    return inputs


def verify(job: Job, graphs: Mapping[str, ir.Model]) -> None:
    job.progress("verifying the typed graphs against PyTorch's golden samples, on the CPU")
    found = check_typed(job.bundle, graphs, job.choice.precision)
    checks = [dataclasses.replace(check, name=f"{check.name}, on the CPU") for check in found]
    job.on_checks(checks)
    require(checks, f"the graph for artifact {job.name}")


def typed_graphs(job: Job, solved: Solved) -> dict[str, ir.Model]:
    """The portable graphs in the types of the precision, and with the attention that the target has."""
    graphs = {}
    dtype, weights = TYPES[job.choice.precision]
    for role in job.portable.graphs:
        graphs[role] = job.graph(role)
        with job.rewriting(role):
            notes = rewrite(
                graphs[role], role, dtype=dtype, weights=weights, attention=cast(AttentionForm, job.choice.attention),
                capacity=solved.capacity if role == "decoder" else None,
                fp32_accumulation=job.options.fp32_accumulation,
            )  # fmt: skip
        for note in notes:
            job.progress(f"the {role}: {note}")
    return graphs


def dtype_of(job: Job) -> DType:
    """Of activations and caches."""
    return TYPES[job.choice.precision][0]


def weight_bytes(graph: ir.Model) -> int:
    return sum(value.const_value.nbytes for value in graph.graph.initializers.values() if value.const_value is not None)


def input_dims(graph: ir.Model) -> dict[str, Dims]:
    """Dimensions of a graph's inputs: numbers, and names of symbolic ones."""
    dims = {}
    for value in graph.graph.inputs:
        shape = value.shape or ()
        dims[value.name or ""] = tuple(dim if isinstance(dim, int) else str(dim.value) for dim in shape)
    return dims
