"""Functions of the library in C that Python calls, with their types."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime import native

ADDRESS, NUMBER = ctypes.c_void_p, ctypes.c_int64


@functools.cache
def functions() -> ctypes.CDLL | None:
    """The library, where it is to be used here."""
    path = native.library()
    if path is None or native.instructions() is None:
        return None
    found = ctypes.CDLL(str(path))
    found.edgeformer_choose.argtypes = [ADDRESS, *[NUMBER] * 3, ADDRESS, ADDRESS]
    found.edgeformer_best.argtypes = [ADDRESS, *[NUMBER] * 4, ADDRESS, NUMBER, ADDRESS, ADDRESS]
    found.edgeformer_move.argtypes = [ADDRESS, *[NUMBER] * 6, ADDRESS, NUMBER]
    found.edgeformer_choose.restype = found.edgeformer_best.restype = None
    found.edgeformer_move.restype = ctypes.c_int
    return found


def address_of(array: NDArray[np.generic]) -> int:
    return int(array.__array_interface__["data"][0])
