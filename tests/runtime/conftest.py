"""Loaded artifacts of the tiny bundle, and what PyTorch says about the same words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edgeformer.runtime import Model, load
from edgeformer.runtime.backends import lacking
from edgeformer.runtime.bundle import read_manifest

if TYPE_CHECKING:
    from edgeformer.models.transformer import Transformer

ARTIFACTS = ("onnx", "ort-cpu-fp32", "ort-cpu-int8")
EXACT = ARTIFACTS[:2]  # those that give what PyTorch gives, token for token


@pytest.fixture(scope="session")
def loaded(tiny_bundle: Path) -> Callable[[str], Model]:
    """An artifact of the tiny bundle, on one thread; skips where ONNX Runtime is too old for the portable graphs."""
    models: dict[str, Model] = {}

    def get(name: str) -> Model:
        if name not in models:
            if name == "onnx" and (reason := lacking(read_manifest(tiny_bundle).artifacts[0])):
                pytest.skip(reason)
            models[name] = load(tiny_bundle, name, threads=1)
        return models[name]

    return get


@pytest.fixture(params=ARTIFACTS)
def model(request: pytest.FixtureRequest, loaded: Callable[[str], Model]) -> Model:
    """Every artifact in turn."""
    return loaded(request.param)


@pytest.fixture(params=EXACT)
def exact(request: pytest.FixtureRequest, loaded: Callable[[str], Model]) -> Model:
    """Every artifact in fp32 in turn."""
    return loaded(request.param)


@pytest.fixture
def fast(loaded: Callable[[str], Model]) -> Model:
    """One artifact, for what has nothing to do with which."""
    return loaded("ort-cpu-fp32")


@pytest.fixture(scope="session")
def pytorch(tiny_checkpoint: Path) -> Transformer:
    """The tiny checkpoint in PyTorch."""
    from edgeformer.models.checkpoint import load_checkpoint

    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="session")
def sources(loaded: Callable[[str], Model], words: list[str]) -> list[list[int]]:
    """The words as ids."""
    return loaded("ort-cpu-fp32").text.encode_sources(words)
