"""Whether an artifact of a bundle gives what PyTorch gave when the bundle was made, whatever its model's kind."""

from __future__ import annotations

from pathlib import Path

from edgeformer.exporter.encoder_parity import check_encoder
from edgeformer.exporter.parity import Check, check_golden
from edgeformer.runtime import EncoderModel, Model, load, load_encoder
from edgeformer.runtime.bundle import Manifest


def check_artifact(folder: Path, name: str, manifest: Manifest) -> list[Check]:
    """Load an artifact and compare it with the samples of its bundle's manifest."""
    return check_model(load_encoder(folder, name) if manifest.kind == "encoder" else load(folder, name))


def check_model(model: Model | EncoderModel) -> list[Check]:
    """Compare a loaded artifact with the samples of its bundle's manifest."""
    if isinstance(model, EncoderModel):
        return check_encoder(model, model.record.samples)
    return check_golden(model, model.bundle.manifest.golden)
