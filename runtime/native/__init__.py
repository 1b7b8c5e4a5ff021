"""Operators of our own for ONNX Runtime on a CPU, in C.

Where they are built and the processor has what they need, they take the place of functions that graphs carry under the
same names, made of ONNX Runtime's own operators. What they save is time; what they compute each source file says. They
are built when the package is installed with a C compiler at hand. The environment variable EDGEFORMER_NATIVE=0
leaves them unused, and avx2 has them compute with those instructions alone.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime

SWITCH = "EDGEFORMER_NATIVE"
NAME = "_operators"


def library() -> Path | None:
    """The shared library, if it was built."""
    folder = Path(__file__).parent
    candidates = (folder / f"{NAME}{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    return next((path for path in candidates if path.is_file()), None)


def instructions() -> str | None:
    """The processor's instructions that operators compute with; None where they are not used."""
    path = library()
    if path is None or switched_off():
        return None
    named = ctypes.CDLL(str(path)).edgeformer_instructions
    named.restype = ctypes.c_char_p
    found = named()
    return found.decode() if found is not None else None


def unused() -> str | None:
    """Why graphs compute without the operators; None where they are used."""
    if switched_off():
        return f"{SWITCH} is 0"
    if library() is None:
        return "not built: install a C compiler, and edgeformer again"
    return None if instructions() is not None else "there are none for this processor: they need AVX2"


def switched_off() -> bool:
    return os.environ.get(SWITCH) == "0"


def register(options: onnxruntime.SessionOptions) -> None:
    """Let sessions with these options compute with the operators, where they are to be used here."""
    path = library()
    if path is not None and not switched_off():
        options.register_custom_ops_library(str(path))
