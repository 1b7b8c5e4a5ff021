"""Whatever the family: graphs for ONNX Runtime's CPU kernels give what the portable graphs give, however rows step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.runtime import load
from edgeformer.runtime.backends import lacking, onnxruntime_long_steps
from edgeformer.runtime.bundle import read_manifest

from .families import MODULES, steps
from .graphs import operators, read

# Attentions that no kernel takes stay as they are.
PORTABLE = {"llama heads of 6"}


@pytest.fixture(scope="module", params=MODULES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bundle(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the artifacts onnx and ort-cpu-fp32, both verified against PyTorch."""
    folder = tmp_path_factory.mktemp("family")
    export_module(MODULES[family](folder / "checkpoint"), folder / "bundle")
    optimize_bundle(folder / "bundle", "ort-cpu", "fp32")
    return folder / "bundle"


def test_every_attention_is_one_kernel(family: str, bundle: Path) -> None:
    counts = operators(read(bundle, "decoder", "ort-cpu-fp32"))
    layers = read_manifest(bundle).sizes.num_layers
    assert (counts["GroupQueryAttention"], counts["Attention"]) == ((0, layers) if family in PORTABLE else (layers, 0))
    assert counts["Cos"] == counts["Sin"] == counts["RMSNormalization"] == counts["Sigmoid"] == 0
    turned = family.startswith(("llama", "mistral", "qwen"))
    beside = read_manifest(bundle).artifacts[1].graphs
    assert ("rotation" in beside) is turned


@pytest.mark.parametrize("few", [64, 1], ids=["together", "row by row"])
@pytest.mark.parametrize("chunk", [512, 4], ids=["at once", "in chunks"])
def test_steps_of_any_kind_give_the_portable_graphs_logits(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, few: int, chunk: int
) -> None:
    portable = read_manifest(bundle).artifacts[0]
    if reason := lacking(portable):
        pytest.skip(reason)
    expected = steps(load(bundle, portable.name, threads=1))
    monkeypatch.setattr(onnxruntime_long_steps, "FEW", few)
    monkeypatch.setattr(onnxruntime_long_steps, "CHUNK", chunk)
    monkeypatch.setattr(onnxruntime_long_steps, "LEAST_CHUNK", 1)
    found = steps(load(bundle, "ort-cpu-fp32", threads=1))
    assert len(found) == len(expected) > 15
    for logits, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
