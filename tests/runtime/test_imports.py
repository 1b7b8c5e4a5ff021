"""The runtime comes without torch, and takes each vendor's library only when it is used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "tokenizers", "safetensors", "transformers")
NEVER = ("torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "edgeformer.models", "edgeformer.exporter")


def loaded_by(code: str) -> list[str]:
    """Modules that a fresh interpreter has after running this code."""
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_importing_the_runtime_loads_numpy_and_no_library_beside_it() -> None:
    modules = loaded_by("import edgeformer.runtime")
    assert [name for name in HEAVY if name in modules] == []
    assert "numpy" in modules


def test_looking_for_backends_loads_no_vendors_library() -> None:
    modules = loaded_by(
        "from edgeformer.runtime.backends import backends\nassert backends()['ort-cpu'].unavailable() is None"
    )
    assert [name for name in HEAVY if name in modules] == []


@pytest.mark.parametrize("artifact", ["ort-cpu-fp32", "ort-cpu-int8"])
def test_generating_takes_neither_torch_nor_onnx(tiny_bundle: Path, artifact: str) -> None:
    modules = loaded_by(
        "from edgeformer.runtime import GenerationConfig, load\n"
        f"model = load({str(tiny_bundle)!r}, {artifact!r}, threads=1)\n"
        "assert model.generate(['word'], GenerationConfig(num_beams=4))[0].text\n"
        "assert list(model.stream('word')) and model.score(['word'], ['W ER D'])"
    )
    assert [name for name in NEVER if name in modules] == []
    assert "onnxruntime" in modules
