"""What `inspect` says of engines: from the manifest, and from the report that stands beside the plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeformer.cli.printing import size
from edgeformer.runtime.bundle import Artifact, Limits
from edgeformer.runtime.errors import BundleError

if TYPE_CHECKING:
    from edgeformer.exporter.tensorrt.report import BuildReport

COLUMNS = ("engine", "role", "plan", "fused attentions", "GPUs", "built with", "capacity")
PROFILE_COLUMNS = ("engine", "role", "profile", "limits")


def read_builds(folder: Path, artifact: Artifact) -> tuple[Mapping[str, BuildReport], str | None]:
    """The report of each role's build; where there is none that can be read, nothing and the reason."""
    from edgeformer.exporter.tensorrt.report import REPORT, read_report

    if f"{artifact.name}/{REPORT}" not in artifact.files:
        return {}, f"artifact {artifact.name} has no {REPORT}"
    try:
        return read_report(folder / artifact.name).builds, None
    except BundleError as error:
        return {}, str(error)


def describe_engine(folder: Path, artifact: Artifact) -> dict[str, Any]:
    """For JSON: what the plans were built with and for, and what their report says of attentions and sizes."""
    if artifact.engine is None:
        return {}
    builds, reason = read_builds(folder, artifact)
    told = {
        role: {
            "plan_bytes": build.plan_bytes,
            "fused": build.fused,
            "attentions": [dataclasses.asdict(attention) for attention in build.attentions],
            "cache_updates": len(build.cache_updates),
            "weights": dict(build.weights),
            "memory": dict(build.memory),
            "unused_inputs": list(build.unused_inputs),
        }
        for role, build in builds.items()
    }
    return {"engine": dataclasses.asdict(artifact.engine), "builds": told, "report_problem": reason}


def engine_rows(folder: Path, artifact: Artifact) -> list[tuple[str, ...]]:
    """A row for each plan, in the order of `COLUMNS`."""
    engine = artifact.engine
    if engine is None:
        return []
    builds, _ = read_builds(folder, artifact)
    gpus = ", ".join(engine.compute_capabilities) or "the one that built it"
    return [
        (artifact.name, role, size(artifact.files[path].bytes), told_fusion(builds.get(role)), gpus,
         f"{engine.module} {engine.version}", str(engine.capacity))
        for role, path in artifact.graphs.items()
    ]  # fmt: skip


def told_fusion(build: BuildReport | None) -> str:
    if build is None:
        return "not known: no report"
    return f"{build.fused} of {len(build.attentions)}"


def profile_rows(artifact: Artifact) -> list[tuple[str, ...]]:
    """A row for each profile of each plan, in the order of `PROFILE_COLUMNS`."""
    if artifact.engine is None:
        return []
    return [
        (artifact.name, role, str(number), ", ".join(f"{name} {told(limits)}" for name, limits in profile.items()))
        for role, profiles in artifact.engine.profiles.items()
        for number, profile in enumerate(profiles)
    ]


def told(limits: Limits) -> str:
    """As the command line takes them: 1:8:64 is least, usual and most; one number where they are equal."""
    return str(limits[0]) if limits[0] == limits[2] else ":".join(map(str, limits))
