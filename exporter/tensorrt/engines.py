"""A bundle's graphs become engines: typed, verified, built and described."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import cast

import onnx_ir as ir

from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.jobs import Job
from edgeformer.exporter.parity import require
from edgeformer.exporter.records import versions
from edgeformer.exporter.targets import capabilities, check_model, check_version
from edgeformer.exporter.targets.capabilities import RTX
from edgeformer.exporter.tensorrt import memory
from edgeformer.exporter.tensorrt.graphs import AttentionForm, DType, Weights, rewrite
from edgeformer.exporter.tensorrt.plugins import KERNELS, write_plugin_kernels
from edgeformer.exporter.tensorrt.processes import probe, run_build
from edgeformer.exporter.tensorrt.profiles import Solved, input_shapes, solve
from edgeformer.exporter.tensorrt.refusals import check_features, check_machine
from edgeformer.exporter.tensorrt.report import REPORT, ArtifactReport, BuildReport, build_from_values
from edgeformer.exporter.tensorrt.report_html import to_html
from edgeformer.exporter.tensorrt.requests import BuildRequest, Installed
from edgeformer.exporter.tensorrt.unfused import allow_unfused
from edgeformer.exporter.tensorrt.verification import check_typed
from edgeformer.runtime.bundle import Artifact, Engine
from edgeformer.runtime.identity import graph_hash, this_platform
from edgeformer.runtime.names import Dims

TYPES: dict[str, tuple[DType, Weights]] = {
    "fp16": ("float16", None),
    "bf16": ("bfloat16", None),
    "fp32": ("float32", None),
    "int8": ("float16", "int8"),
    "int4": ("float16", "int4"),
}
GRAPHS = "graphs"  # folder of the graphs that the engines are built from; it stays where weights are to be put back


def make_engines(job: Job) -> Artifact:
    """Engines for `tensorrt` or `tensorrt_rtx`; whichever the target names.

    Raises:
        TargetError, LimitsError, BackendUnavailableError: before any work, what cannot be done here.
        NotEnoughMemoryError, BuildError, ParityError: what went wrong.
    """
    target, sizes = job.choice.target, job.bundle.manifest.sizes
    check_model(job.choice, sizes)
    solved = solve(sizes, job.options)
    installed = probe(str(target.module))
    check_version(target, installed.version)
    features = capabilities(installed.module, installed.version, jetson=target.jetson)
    check_features(job.options, installed, features)
    check_machine(job.choice, installed, features)
    graphs = typed_graphs(job, solved)
    weights = {role: weight_bytes(graph) for role, graph in graphs.items()}
    free = memory.available()
    for role, size in weights.items():
        memory.check(f"the {role}'s engine", size, free)
    job.progress("writing the graphs that engines are built from")
    (job.folder / GRAPHS).mkdir()
    save_graphs(job.folder / GRAPHS, graphs)
    inputs = {role: input_dims(graph) for role, graph in graphs.items()}
    job.progress("verifying the typed graphs against PyTorch's golden samples, on the CPU")
    checks = check_typed(job.bundle, graphs, job.choice.precision)
    job.on_checks(checks)
    require(checks, f"the graph for artifact {job.name}")
    if job.choice.attention == "plugin":
        job.progress("compiling the kernels of attention")
        gpus = job.choice.compute_capabilities or (str(installed.gpu),)
        write_plugin_kernels(job.folder / KERNELS, graphs.values(), dtype_of(job), sizes.head_dim, gpus)
    for role in graphs if job.options.allow_unfused else ():
        allow_unfused(job.folder / GRAPHS / f"{role}.onnx")
    del graphs  # their weights are wanted no more, and the memory is
    reports = {role: build(job, installed, solved, role, dims) for role, dims in inputs.items()}
    if not job.options.strip_weights:
        shutil.rmtree(job.folder / GRAPHS)
    write_report(job, reports)
    return describe(job, installed, solved, reports)


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


def request_for(job: Job, installed: Installed, solved: Solved, role: str, inputs: Mapping[str, Dims]) -> BuildRequest:
    options, profiles = job.options, solved.profiles[role]
    flags = {
        "STRIP_PLAN": options.strip_weights,
        "VERSION_COMPATIBLE": options.version_compatible,
        "EXCLUDE_LEAN_RUNTIME": options.version_compatible,  # a runtime in each plan, when one is installed anyway
        "WEIGHT_STREAMING": options.weight_streaming,
        "REQUIRE_USER_ALLOCATION": installed.module == RTX,  # else CUDA graphs can't capture it
    }
    return BuildRequest(
        module=installed.module,
        role=role,
        graph=str((job.folder / GRAPHS / f"{role}.onnx").resolve()),
        plan=str((job.folder / f"{role}.plan").resolve()),
        shapes=tuple(input_shapes(inputs, profiles)),
        profiles=profiles,
        compute_capabilities=job.choice.compute_capabilities if installed.module == RTX else (),
        flags=tuple(flag for flag, wanted in flags.items() if wanted),
        hardware_compatibility="AMPERE_PLUS" if options.hardware_compatible else None,
        workspace=options.workspace,
        opt_level=options.opt_level,
        timing_cache=str(options.timing_cache.resolve()) if options.timing_cache else None,
        kernels=str((job.folder / KERNELS).resolve()) if job.choice.attention == "plugin" else None,
        versions={installed.module: installed.version, **versions("edgeformer", "onnx-ir")},
    )


def build(job: Job, installed: Installed, solved: Solved, role: str, inputs: Mapping[str, Dims]) -> BuildReport:
    """Build one engine in a process of its own, and say what came of it."""
    job.progress(f"building the {role}'s engine")
    request = request_for(job, installed, solved, role, inputs)
    built = run_build(request, job.folder / GRAPHS, job.on_build)
    report = build_from_values(built.report)
    for unused in report.unused_inputs:
        job.progress(f"warning: the {role}: {unused}")
    job.progress(
        f"built the {role}: {report.fused} of {len(report.attentions)} attentions fused, "
        f"{report.plan_bytes / 1e6:.1f} MB, {built.peak / 1e9:.1f} GB of memory at most"
    )
    return report


def write_report(job: Job, reports: Mapping[str, BuildReport]) -> None:
    choice = job.choice
    report = ArtifactReport(job.name, choice.target.name, choice.precision, choice.compute_capabilities, reports)
    (job.folder / REPORT).write_text(report.to_json(), encoding="utf-8")
    (job.folder / REPORT).with_suffix(".html").write_text(to_html(report), encoding="utf-8")


def describe(job: Job, installed: Installed, solved: Solved, reports: Mapping[str, BuildReport]) -> Artifact:
    """The artifact's record in the manifest."""
    options = job.options
    here = (installed.gpu,) if installed.gpu else ()
    engine = Engine(
        module=installed.module,
        version=installed.version,
        compute_capabilities=job.choice.compute_capabilities or here,
        platform=this_platform(),
        graphs={role: graph_hash(job.portable, role) for role in reports},
        version_compatible=options.version_compatible,
        hardware_compatible=options.hardware_compatible,
        stripped=options.strip_weights,
        dtype=dtype_of(job),
        capacity=solved.capacity,
        profiles=solved.profiles,
        memory={
            role: report.memory["activations"] for role, report in reports.items() if "activations" in report.memory
        },
        streamable=options.weight_streaming,
    )
    return Artifact(
        name=job.name,
        target=job.choice.target.name,
        backend=job.choice.target.backend,
        precision=job.choice.precision,
        graphs={role: f"{job.name}/{role}.plan" for role in reports},
        files={},
        versions={installed.module: installed.version, **versions("onnx-ir")},
        needs={},
        engine=engine,
    )
