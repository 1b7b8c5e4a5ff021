"""What several commands say about bundles, as values for JSON and as rows for tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeformer.cli.printing import size
from edgeformer.runtime.bundle import Artifact, FileRecord, Manifest

if TYPE_CHECKING:
    from edgeformer.exporter.parity import Check


def bytes_of(files: Mapping[str, FileRecord]) -> int:
    return sum(record.bytes for record in files.values())


def samples_of(manifest: Manifest) -> int:
    """How many samples of what PyTorch gave a bundle has."""
    return len(manifest.golden if manifest.encoder is None else manifest.encoder.samples)


def describe_model(manifest: Manifest) -> dict[str, Any]:
    described: dict[str, Any] = {
        "family": manifest.model_type,
        "kind": manifest.kind,
        "sizes": dataclasses.asdict(manifest.sizes),
        "tokens": dataclasses.asdict(manifest.tokens),
    }
    if manifest.encoder is not None:
        described["encoder"] = dataclasses.asdict(manifest.encoder)
        del described["encoder"]["samples"]
    return described


def describe_artifact(artifact: Artifact) -> dict[str, Any]:
    return {
        "name": artifact.name,
        "target": artifact.target,
        "backend": artifact.backend,
        "precision": artifact.precision,
        "bytes": bytes_of(artifact.files),
        "files": {name: record.bytes for name, record in artifact.files.items()},
        "versions": dict(artifact.versions),
    }


def describe_checks(checks: Sequence[Check]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(check) for check in checks]


def model_rows(folder: Path, manifest: Manifest) -> list[tuple[str, str]]:
    """Rows of two columns: what the bundle holds."""
    sizes, tokens, encoder = manifest.sizes, manifest.tokens, manifest.encoder
    rows = [("bundle", str(folder)), ("family", manifest.model_type), ("kind", manifest.kind)]
    if encoder is not None:
        labels = f": {', '.join(encoder.labels)}" if encoder.labels else ""
        rows.append(("head", f"{encoder.head}, {encoder.width} numbers{labels}"))
    return [
        *rows,
        ("sizes", ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(sizes).items() if value)),
        ("tokens", f"pad {tokens.pad}, start {tokens.start}, end {', '.join(map(str, tokens.ends)) or 'none'}"),
    ]


def artifact_row(artifact: Artifact) -> tuple[str, str]:
    return (
        "artifact",
        f"{artifact.name}, {artifact.precision} for {artifact.target}, {size(bytes_of(artifact.files))}",
    )


def check_rows(checks: Sequence[Check]) -> list[tuple[str, str, str]]:
    """Rows of three columns: check, whether it passed, and the detail."""
    return [(check.name, "passed" if check.passed else "FAILED", check.detail) for check in checks]
