"""A bundle gets an artifact for a target."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from onnx_ir.passes import PassError, PreconditionError

from edgeformer.exporter.external_weights import load_graph, save_graphs
from edgeformer.exporter.ort_cpu import rewrite
from edgeformer.exporter.parity import OnChecks, check_golden, require
from edgeformer.exporter.records import PORTABLE, Progress, record_files, versions
from edgeformer.exporter.staging import staged
from edgeformer.exporter.targets import find_target
from edgeformer.runtime import load
from edgeformer.runtime.bundle import MANIFEST, Artifact, open_bundle
from edgeformer.runtime.errors import BundleError, TargetError


def optimize_bundle(
    folder: Path,
    target_name: str,
    precision: str | None = None,
    *,
    progress: Progress = lambda step: None,
    on_checks: OnChecks = lambda checks: None,
) -> Artifact:
    """Make an artifact for a target from a bundle's portable graphs, and put it into the bundle.

    An artifact of the same target and precision is replaced; the others stay as they are.

    Args:
        folder: the bundle.
        target_name: a row of `edgeformer.exporter.targets`.
        precision: how weights are stored; the target's first where it is None.
        progress: called with the name of each part of the work as it begins.
        on_checks: called with the comparison to PyTorch.

    Raises:
        TargetError: no such target, or it cannot do this.
        BundleError: the bundle is damaged.
        WriteError: writing failed; the bundle is as it was.
        ParityError: the artifact does not give what PyTorch gave; the bundle is as it was.
    """
    target, precision = find_target(target_name, precision)
    progress("checking the bundle")
    bundle = open_bundle(folder)
    name = f"{target.name}-{precision}"
    portable = bundle.artifact(PORTABLE)
    if portable is None:
        raise BundleError(f"bundle {folder}", [f"it has no artifact {PORTABLE!r} to begin with: export it anew"])
    graphs = {role: load_graph(folder / path) for role, path in portable.graphs.items()}
    for role, graph in graphs.items():
        progress(f"rewriting the {role} graph")
        try:
            rewrite(graph, precision)
        except (PassError, PreconditionError) as error:
            reason = error.__cause__ if isinstance(error.__cause__, PreconditionError) else error
            raise TargetError(f"target {target.name} cannot take the {role} of {folder}: {reason}") from error
    with staged(folder, begin_with=folder, overwrite=True) as partial:
        progress("writing")
        shutil.rmtree(partial / name, ignore_errors=True)
        (partial / name).mkdir()
        save_graphs(partial / name, graphs)
        artifact = Artifact(
            name=name,
            target=target.name,
            backend=target.backend,
            precision=precision,
            graphs={role: f"{name}/{role}.onnx" for role in graphs},
            files=record_files(partial, partial / name),
            versions=versions("onnxruntime", "onnx-ir"),
            needs={"onnxruntime": "1.23"},  # the oldest that this was run with
            shared_sources=True,
            long_steps_need_empty_caches=True,
        )
        others = tuple(other for other in bundle.manifest.artifacts if other.name != name)
        manifest = dataclasses.replace(bundle.manifest, artifacts=(*others, artifact))
        (partial / MANIFEST).unlink()
        (partial / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        progress("verifying against PyTorch's golden samples")
        checks = check_golden(load(partial, name), manifest.golden)
        on_checks(checks)
        require(checks, f"artifact {name}")
    return artifact
