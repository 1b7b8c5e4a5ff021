"""From a bundle's folder to a model that runs here."""

from __future__ import annotations

from pathlib import Path

from edgeformer.runtime.backends import lacking
from edgeformer.runtime.bundle import Artifact, open_bundle, read_manifest
from edgeformer.runtime.errors import BackendUnavailableError, TargetError
from edgeformer.runtime.model import Model

# An artifact made for a target before the portable graphs; full precision before what rounds weights.
PRECISIONS = ("fp32", "int8", "int8-rows")


def load(bundle: str | Path, artifact: str | None = None, *, threads: int | None = None) -> Model:
    """Load the best artifact of a bundle that runs here; `model.artifact` says which.

    Args:
        bundle: the bundle's folder.
        artifact: name of the artifact to load, as `edgeformer inspect` lists them; the best that runs here where it is
            None: one made for a target before the portable graphs, and full precision before 8 bits.
        threads: cores to use; all where it is None.

    Raises:
        BundleError: the bundle is missing, damaged or too new; every problem is named.
        TargetError: it holds no such artifact.
        BackendUnavailableError: what the artifact needs is not installed.
    """
    folder = Path(bundle)
    chosen = choose(folder, artifact)
    return Model(open_bundle(folder, artifacts=lambda candidate: candidate.name == chosen.name), chosen, threads)


def choose(folder: Path, name: str | None) -> Artifact:
    artifacts = read_manifest(folder).artifacts
    if name is not None:
        for artifact in artifacts:
            if artifact.name == name:
                return artifact
        raise TargetError(f"bundle {folder} has no artifact {name!r}; it has: {', '.join(a.name for a in artifacts)}")
    reasons: list[str] = []
    for artifact in sorted(artifacts, key=rank):
        if (reason := lacking(artifact)) is None:
            return artifact
        reasons.append(f"{artifact.name}: {reason}")
    raise BackendUnavailableError(f"nothing in bundle {folder} can run here: {'; '.join(reasons) or 'it is empty'}")


def rank(artifact: Artifact) -> tuple[bool, int]:
    known = artifact.precision in PRECISIONS
    return artifact.name == "onnx", PRECISIONS.index(artifact.precision) if known else len(PRECISIONS)
