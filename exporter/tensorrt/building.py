"""One engine from one ONNX graph, with whichever TensorRT module is passed in."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeformer.exporter.targets import capabilities
from edgeformer.exporter.tensorrt import memory
from edgeformer.exporter.tensorrt.api import TensorRT
from edgeformer.exporter.tensorrt.describing import describe
from edgeformer.exporter.tensorrt.fusion import explain_failure
from edgeformer.exporter.tensorrt.monitor import make_logger, make_monitor
from edgeformer.exporter.tensorrt.plugins import offer_plugins
from edgeformer.exporter.tensorrt.report import LogLine
from edgeformer.exporter.tensorrt.requests import BuildRequest, Built
from edgeformer.exporter.tensorrt.timing import load_timings, save_timings
from edgeformer.runtime.errors import BuildError
from edgeformer.runtime.plugins import allow_aliases

if TYPE_CHECKING:
    import tensorrt

PREFER_CARRIED = "PREFER_AOT_PYTHON_PLUGINS"  # of NetworkDefinitionCreationFlag
Report = Callable[[float, str], bool]  # the fraction that is done, and the phase; False cancels


def build(trt: TensorRT, version: str, request: BuildRequest, report: Report) -> Built:
    """Build a plan and write it.

    Args:
        trt: the module that the request names.
        version: of it.
        request: what to build.
        report: called now and then; where it gives False, the build ends.

    Raises:
        BuildError: TensorRT refused the graph, or a setting, or no kernel computes an attention; one line says which.
        OSError: the plan could not be written.
    """
    begin, lines = time.perf_counter(), list[LogLine]()
    logger = make_logger(trt, lines)
    builder = make_builder(trt, logger, lines)
    offer_plugins(trt, request)
    network = builder.create_network(network_flags(trt, request, version))
    parse(trt, network, logger, request, lines)
    config = make_config(trt, builder, request)
    config.progress_monitor = monitor = make_monitor(trt, report)
    timings = load_timings(config, request.timing_cache, lines)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise BuildError(why_not(trt, network, request, lines))
    Path(request.plan).write_bytes(plan)
    save_timings(timings, request.timing_cache)
    seconds, peak = time.perf_counter() - begin, memory.peak()
    told = describe(
        trt, network, Path(request.graph), role=request.role, log=lines, seconds=seconds, plan_bytes=plan.nbytes,
        peak_memory=peak, profiles=request.profiles, settings=request.settings, versions=request.versions,
        load_engine=loader(trt, logger, plan) if request.module == "tensorrt" else None,
    )  # fmt: skip
    del monitor  # TensorRT's objects must not outlive it
    return Built(seconds, peak, dataclasses.asdict(told))


def make_builder(trt: TensorRT, logger: tensorrt.ILogger, lines: Sequence[LogLine]) -> tensorrt.Builder:
    try:
        return trt.Builder(logger)
    except TypeError as error:  # what the bindings make of a null pointer: no driver, no GPU
        raise BuildError(f"TensorRT has no builder here: {last_error(lines) or error}") from error


def network_flags(trt: TensorRT, request: BuildRequest, version: str) -> int:
    """Types come from the graph: a flag asks for it where they could come from elsewhere.

    Another prefers plugins whose kernels the engine carries; without it TensorRT takes those that are defined, and we
    define no others.
    """
    known, flags = trt.NetworkDefinitionCreationFlag, 0
    if "strongly_typed_only" not in capabilities(request.module, version):
        flags |= 1 << int(known.STRONGLY_TYPED)
    if request.ahead_of_time and hasattr(known, PREFER_CARRIED):
        flags |= 1 << int(getattr(known, PREFER_CARRIED))
    return flags


def parse(
    trt: TensorRT,
    network: tensorrt.INetworkDefinition,
    logger: tensorrt.ILogger,
    request: BuildRequest,
    lines: Sequence[LogLine],
) -> None:
    """Fill a network from a file, by its path, so that the weights beside it are found.

    Raises:
        BuildError: naming each node that was refused.
    """
    parser = trt.OnnxParser(network, logger)
    if parser.parse_from_file(request.graph):
        return
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    said = "; ".join(
        f"{error.node_name()} ({error.node_operator()}): {error.desc()}" if error.node_operator() else error.desc()
        for error in errors
    ) or last_error(lines)
    raise BuildError(f"{request.module} cannot parse the {request.role}'s graph: {said}")


def make_config(trt: TensorRT, builder: tensorrt.Builder, request: BuildRequest) -> tensorrt.IBuilderConfig:
    config = builder.create_builder_config()
    if request.kernels is not None:
        allow_aliases(trt, config)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # the log then tells the engine's layers
    for flag in request.flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    if request.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, request.workspace)
    if request.opt_level is not None:
        config.builder_optimization_level = request.opt_level
    if request.hardware_compatibility is not None:
        config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, request.hardware_compatibility)
    set_compute_capabilities(trt, config, request.compute_capabilities)
    for shapes in request.shapes:
        profile = builder.create_optimization_profile()
        for name, (least, usual, most) in shapes.items():
            profile.set_shape(name, least, usual, most)  # type: ignore[arg-type]  # a sequence is converted to Dims
        if config.add_optimization_profile(profile) < 0:
            raise BuildError(f"{request.module} refuses the {request.role}'s profile {dict(shapes)}")
    return config


def set_compute_capabilities(trt: Any, config: Any, wanted: Sequence[str]) -> None:
    """Which GPUs an engine is for; TensorRT for RTX alone can be told.

    Raises:
        BuildError: it does not know one.
    """
    if not wanted:
        return
    known = trt.ComputeCapability.__members__
    if unknown := [name for name in wanted if sm(name) not in known]:
        numbers = [f"{name[2:-1]}.{name[-1]}" for name in known if name.startswith("SM")]
        raise BuildError(f"compute capability {', '.join(unknown)} is unknown to it; it knows: {', '.join(numbers)}")
    config.num_compute_capabilities = len(wanted)
    for i, name in enumerate(wanted):
        config.set_compute_capability(known[sm(name)], i)


def sm(compute_capability: str) -> str:
    """SM89 for 8.9."""
    return f"SM{compute_capability.replace('.', '')}"


def loader(trt: TensorRT, logger: tensorrt.ILogger, plan: Any) -> Callable[[], Any]:
    """Loads a plan where it was built: TensorRT builds where there is a GPU, and nowhere else."""
    return lambda: trt.Runtime(logger).deserialize_cuda_engine(plan)


def why_not(trt: TensorRT, network: Any, request: BuildRequest, lines: Sequence[LogLine]) -> str:
    """Why nothing was built, in one line."""
    told = explain_failure(trt, network, Path(request.graph), lines, request.compute_capabilities, request.profiles)
    return told or f"{request.module} built no {request.role}: {last_error(lines) or 'it does not say why'}"


def last_error(lines: Sequence[LogLine]) -> str | None:
    """The last line that tells of an error, on one line."""
    errors = [line.text for line in lines if "error" in line.severity]
    return " ".join(errors[-1].split()) if errors else None
