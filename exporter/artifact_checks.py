"""Whether an artifact of a bundle gives what PyTorch gave when the bundle was made, whatever its model's kind."""

from __future__ import annotations

from pathlib import Path

from edgeformer.exporter.encoder_parity import check_encoder
from edgeformer.exporter.parity import Check, check_golden
from edgeformer.runtime import load, load_encoder
from edgeformer.runtime.bundle import Manifest


def check_artifact(folder: Path, name: str, manifest: Manifest) -> list[Check]:
    """Load an artifact and compare it with the samples of its bundle's manifest."""
    if manifest.kind == "encoder":
        return check_encoder(load_encoder(folder, name))
    return check_golden(load(folder, name), manifest.golden)
