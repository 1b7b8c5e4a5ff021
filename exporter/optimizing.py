"""A bundle gets an artifact for a target."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

from edgeformer.exporter.artifact_checks import check_artifact
from edgeformer.exporter.jobs import Job, Maker
from edgeformer.exporter.ort_cpu.making import make_ort_cpu
from edgeformer.exporter.ort_cuda.making import make_ort_cuda
from edgeformer.exporter.parity import OnChecks, require
from edgeformer.exporter.quantization_options import QuantizationOptions, check_quantization
from edgeformer.exporter.records import PORTABLE, Progress, record_files
from edgeformer.exporter.staging import staged
from edgeformer.exporter.targets import choose_target
from edgeformer.exporter.tensorrt.engines import make_engines
from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.exporter.tensorrt.refusals import check_given
from edgeformer.runtime.backends import lacking
from edgeformer.runtime.bundle import MANIFEST, Artifact, Manifest, open_bundle
from edgeformer.runtime.errors import BundleError


def optimize_bundle(
    folder: Path,
    target_name: str,
    precision: str | None = None,
    options: EngineOptions = EngineOptions(),  # noqa: B008  # it is frozen
    quantization: QuantizationOptions = QuantizationOptions(),  # noqa: B008  # it is frozen
    *,
    progress: Progress = lambda step: None,
    on_checks: OnChecks = lambda checks: None,
    on_build: Callable[[float, str], None] = lambda fraction, phase: None,
) -> Artifact:
    """Make an artifact for a target from a bundle's portable graphs, and put it into the bundle.

    An artifact of the same target and precision is replaced; the others stay as they are.

    Args:
        folder: the bundle.
        target_name: a row of `edgeformer.exporter.targets`.
        precision: how weights are stored; the target's first where it is None.
        options: what is asked of an engine.
        quantization: what is asked of weights in few bits, for ort-cpu.
        progress: called with the name of each part of the work as it begins.
        on_checks: called with the comparison to PyTorch.
        on_build: called with how far the building of an engine is, from 0 to 1, and with its phase.

    Raises:
        TargetError, LimitsError, OptionError: no such target, or it cannot do this.
        InputError: the calibration file cannot be used.
        BundleError: the bundle is damaged.
        BackendUnavailableError: what builds for this target is not installed.
        NotEnoughMemoryError, BuildError: an engine was not built; the bundle is as it was.
        WriteError: writing failed; the bundle is as it was.
        ParityError: the artifact does not give what PyTorch gave; the bundle is as it was.
    """
    choice = choose_target(
        target_name, precision, attention=options.attention, compute_capabilities=options.compute_capabilities,
        allow_unfused=options.allow_unfused,
    )  # fmt: skip
    check_given(options, choice.target)
    check_quantization(quantization, choice.target.name, choice.precision)
    progress("checking the bundle")
    bundle = open_bundle(folder)
    portable = bundle.artifact(PORTABLE)
    if portable is None:
        raise BundleError(f"bundle {folder}", [f"it has no artifact {PORTABLE!r} to begin with: export it anew"])
    name = f"{choice.target.name}-{choice.precision}"
    with staged(folder, begin_with=folder, overwrite=True) as partial:
        shutil.rmtree(partial / name, ignore_errors=True)
        (partial / name).mkdir()
        made = MAKERS[choice.target.backend](
            Job(bundle, portable, choice, partial / name, options, quantization, progress, on_checks, on_build)
        )
        artifact = dataclasses.replace(made, files=record_files(partial, partial / name))
        manifest = with_artifact(bundle.manifest, artifact)
        (partial / MANIFEST).unlink()
        (partial / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        if reason := lacking(artifact):
            progress(f"built, not run here: {reason}")
        else:
            progress("verifying against PyTorch's golden samples")
            checks = check_artifact(partial, name, manifest)
            on_checks(checks)
            require(checks, f"artifact {name}")
    return artifact


def with_artifact(manifest: Manifest, artifact: Artifact) -> Manifest:
    others = tuple(other for other in manifest.artifacts if other.name != artifact.name)
    return dataclasses.replace(manifest, artifacts=(*others, artifact))


# By the backend that runs the artifact.
MAKERS: dict[str, Maker] = {"ort-cpu": make_ort_cpu, "ort-cuda": make_ort_cuda, "tensorrt": make_engines}
