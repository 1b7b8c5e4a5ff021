"""A folder of compiled kernels, which several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeformer.exporter.kernels import compiling
from edgeformer.runtime.plugins.kernels import CACHED, Kernel, Variant

CACHED_FP16 = Variant(CACHED, "float16", 64, 4, 2, 0.125)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Kernel]]:
    """The folder, and what was compiled: for Jetson Orin and the portable form."""
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("artifact") / "kernels"
    return folder, compiling.write_kernels(folder, [CACHED_FP16], ["8.7"])
