"""What was asked of an engine, and cannot be had of this target, this version or this machine: said before any work."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from edgeformer.exporter.kernels.compiling import PORTABLE
from edgeformer.exporter.targets import FEATURES as KNOWN_FEATURES
from edgeformer.exporter.targets import Choice, Target
from edgeformer.exporter.targets.rows import AHEAD_OF_TIME, PLUGIN
from edgeformer.exporter.tensorrt.options import EngineOptions, flag
from edgeformer.exporter.tensorrt.requests import Installed
from edgeformer.runtime.backends import older
from edgeformer.runtime.errors import LimitsError, TargetError
from edgeformer.runtime.identity import this_platform

OPT_LEVELS = range(6)

FEATURES = {  # the feature that an option needs
    "timing_cache": "timing_cache",
    "strip_weights": "stripping",
    "version_compatible": "version_compatible",
    "hardware_compatible": "hardware_compatible",
    "weight_streaming": "weight_streaming",
    "fp32_accumulation": "fp32_accumulation",
}


def check_given(options: EngineOptions, target: Target) -> None:
    """Refuse options that make no sense for a target, before anything is looked at.

    Raises:
        LimitsError: with every problem.
    """
    problems = []
    if target.module is None and (given := [name for name in options.given if name != "--attention"]):
        problems.append(f"{', '.join(given)} is for engines, and it has none: leave it out")
    if options.opt_level is not None and options.opt_level not in OPT_LEVELS:
        problems.append(f"--opt-level is {options.opt_level}, expected 0 to {OPT_LEVELS[-1]}")
    if problems:
        raise LimitsError(f"target {target.name}", problems)


def check_features(options: EngineOptions, installed: Installed, features: Collection[str]) -> None:
    """Refuse options that the installed version lacks.

    Args:
        options: what was asked for.
        installed: the module, its version, and the GPU that is here.
        features: names of what that version can do.

    Raises:
        LimitsError: with every problem.
    """
    if problems := list(lacking(options, installed, features)):
        raise LimitsError(f"{installed.module} {installed.version}", problems)


def lacking(options: EngineOptions, installed: Installed, features: Collection[str]) -> Iterator[str]:
    for field, feature in FEATURES.items():
        if getattr(options, field) and feature not in features:
            yield f"it has no {flag(field)}: leave it out"
    if options.attention == AHEAD_OF_TIME and "aot_plugins" not in features:
        since = KNOWN_FEATURES["aot_plugins"].since(installed.module)
        yield f"it has no --attention {AHEAD_OF_TIME}, which came with {since}: take --attention {PLUGIN}"
    if options.strip_weights and "stripping" in features and installed.gpu is None:
        yield "--strip-weights needs a GPU while it builds, and there is none here: leave it out"


def check_machine(choice: Choice, installed: Installed, features: Collection[str]) -> None:
    """Refuse to build here what can only be built where it is to run.

    Raises:
        TargetError: this is another kind of machine, or it has no GPU, or another one.
    """
    if "builds_without_gpu" in features:
        return
    target, here = choice.target, this_platform()
    if here not in target.platforms:
        where = " or ".join(target.platforms)
        raise TargetError(f"target {target.name} is for {where}, and this is {here}: optimize the bundle there")
    if installed.gpu is None:
        raise TargetError(
            f"{installed.module} builds on the GPU that an engine is for, and there is none here: optimize the bundle "
            "where it is to run; only the target tensorrt-rtx builds without a GPU"
        )
    wanted = choice.compute_capabilities or target.compute_capabilities
    if installed.gpu not in wanted or len(choice.compute_capabilities) > 1:
        raise TargetError(
            f"{installed.module} builds for the GPU that is here, of compute capability {installed.gpu}, and this is "
            f"to be for {', '.join(wanted)}: take another target, or another machine"
        )
    if choice.attention == AHEAD_OF_TIME and older(installed.gpu, PORTABLE):
        raise TargetError(
            f"--attention {AHEAD_OF_TIME} is for GPUs of compute capability {PORTABLE} and later, this one has "
            f"{installed.gpu}: take --attention {PLUGIN}"
        )
