"""A bundle's graphs become engines, each built in a process of its own and described."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from edgeformer.exporter.jobs import Job
from edgeformer.exporter.records import versions
from edgeformer.exporter.targets import capabilities, check_model, check_version
from edgeformer.exporter.targets.capabilities import RTX
from edgeformer.exporter.targets.rows import AHEAD_OF_TIME
from edgeformer.exporter.tensorrt.plugins import KERNELS, OWN_FORMS
from edgeformer.exporter.tensorrt.preparing import GRAPHS, dtype_of, prepare
from edgeformer.exporter.tensorrt.processes import probe, run_build
from edgeformer.exporter.tensorrt.profiles import Solved, input_shapes, solve
from edgeformer.exporter.tensorrt.refusals import check_features, check_machine
from edgeformer.exporter.tensorrt.report import REPORT, ArtifactReport, BuildReport, build_from_values
from edgeformer.exporter.tensorrt.report_html import to_html
from edgeformer.exporter.tensorrt.requests import BuildRequest, Installed
from edgeformer.runtime.bundle import Artifact, Engine
from edgeformer.runtime.identity import graph_hash, this_platform
from edgeformer.runtime.names import Dims


def make_engines(job: Job) -> Artifact:
    """Engines for `tensorrt` or `tensorrt_rtx`, whichever the target names.

    Raises:
        TargetError, LimitsError, BackendUnavailableError: before any work, what cannot be done here.
        NotEnoughMemoryError, BuildError, ParityError: what went wrong.
    """
    manifest = job.bundle.manifest
    solved = solve(manifest.kind, manifest.sizes, job.options)
    installed = check_possible(job)
    inputs = prepare(job, solved, installed)
    reports = {role: build(job, installed, solved, role, dims) for role, dims in inputs.items()}
    if not job.options.strip_weights:
        shutil.rmtree(job.folder / GRAPHS)
    if job.choice.attention == AHEAD_OF_TIME:
        shutil.rmtree(job.folder / KERNELS)  # the plans carry them
    write_report(job, reports)
    return describe(job, installed, solved, reports)


def check_possible(job: Job) -> Installed:
    """What is installed here, once it is known to do what is asked for."""
    target = job.choice.target
    check_model(job.choice, job.bundle.manifest.sizes)
    installed = probe(str(target.module), target.install)
    check_version(target, installed.version)
    features = capabilities(installed.module, installed.version, jetson=target.jetson)
    check_features(job.options, installed, features)
    check_machine(job.choice, installed, features)
    return installed


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
        kernels=str((job.folder / KERNELS).resolve()) if job.choice.attention in OWN_FORMS else None,
        ahead_of_time=job.choice.attention == AHEAD_OF_TIME,
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
        caches_in_place=caches_in_place(job.choice.attention),
    )
    return job.artifact(
        reports,
        "plan",
        {installed.module: installed.version, **versions("onnx-ir")},
        needs={},
        engine=engine,
    )


def caches_in_place(attention: str) -> bool | None:
    """For the record, where the engine cannot be asked: it tells of TensorRT's cache layer, and not of plugins."""
    return True if attention in OWN_FORMS else False if attention == "primitive" else None
