"""Which packages a command or an extra needs, and which of them are here."""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Sequence
from importlib.util import find_spec

from edgeformer.runtime.errors import BackendUnavailableError

# Packages of each extra in pyproject.toml, beyond what every installation has; a test holds the two together.
EXTRAS = {
    "cpu": ("onnxruntime",),
    "chat": ("jinja2",),
    "gpu": ("onnxruntime-gpu", "tensorrt", "cuda-python"),
    "rtx": ("tensorrt-rtx-cu13", "cuda-python"),
    "export": ("torch", "jinja2", "onnx", "onnx-ir", "onnxscript", "safetensors", "onnxruntime"),
}
ALWAYS = ("numpy", "tokenizers", "typer")
TO_OPTIMIZE = ("jinja2", "onnx", "onnx_ir", "onnxruntime")
TO_EXPORT = ("torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "onnxruntime")


def installed_version(package: str) -> str | None:
    """The version of a package as pip names it, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_versions() -> dict[str, str]:
    """Versions of edgeformer and of those packages that it works with, where they are installed."""
    packages = ("edgeformer", *ALWAYS, *itertools.chain.from_iterable(EXTRAS.values()))
    return {package: version for package in packages if (version := installed_version(package)) is not None}


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [package for package in EXTRAS[extra] if installed_version(package) is None]


def install_command(extra: str) -> str:
    return f"pip install 'edgeformer[{extra}]'"


def require(modules: Sequence[str], what: str) -> None:
    """Refuse work whose modules are not all here, before it begins.

    Raises:
        BackendUnavailableError: naming every module that is missing, and how to get them.
    """
    if lacking := [module for module in modules if find_spec(module) is None]:
        raise BackendUnavailableError(
            f"{what} needs {', '.join(lacking)}, not installed here: {install_command('export')}"
        )
