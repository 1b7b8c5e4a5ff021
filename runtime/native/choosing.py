"""What a search takes of logits, in C: see choosing.h. The searches do the same with numpy where it was not built."""

from __future__ import annotations

import ctypes
from typing import cast

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.native.functions import address_of, functions

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def readable(array: NDArray[np.generic]) -> Floats:
    """Numbers as C reads them: float32, those of a row after one another. Others would be read as what they are not."""
    if array.dtype == np.float32 and array.strides[-1] == 4:
        return cast("Floats", array)
    return np.ascontiguousarray(array, np.float32)


class Choosing:
    """Both, with arrays for what they find that are kept from call to call.

    Args:
        library: as `functions` gives it.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.choose, self.best = library.edgeformer_choose, library.edgeformer_best
        self.resize((0,))

    @classmethod
    def here(cls) -> Choosing | None:
        """None where the library is not to be used."""
        library = functions()
        return cls(library) if library is not None else None

    def resize(self, shape: tuple[int, ...]) -> None:
        self.places, self.values = np.empty(shape, np.int64), np.empty(shape, np.float32)
        self.addresses = address_of(self.places), address_of(self.values)

    def likeliest(self, logits: Floats) -> tuple[Ints, Floats]:
        """The first of each row's likeliest tokens, and its log-probability, (rows,); logits are (rows, vocab_size)."""
        logits = readable(logits)
        rows, n = logits.shape
        if self.places.shape != (rows,):
            self.resize((rows,))
        places, values = self.addresses
        self.choose(address_of(logits), rows, logits.strides[0] // 4, n, places, values)
        return self.places.copy(), self.values.copy()

    def continuations(self, logits: Floats, scores: Floats, sources: int, count: int) -> list[list[tuple[float, int]]]:
        """The best of each source, best first: totals, and hypothesis * vocab_size + token; -inf where there are fewer.

        Args:
            logits: (rows, vocab_size), those of a source's running hypotheses after one another.
            scores: (rows,), log-probabilities of the hypotheses.
        """
        logits, scores = readable(logits), readable(scores)
        rows, n = logits.shape
        if self.places.shape != (sources, count):
            self.resize((sources, count))
        places, values = self.addresses
        step = logits.strides[0] // 4
        self.best(address_of(logits), sources, rows // sources, step, n, address_of(scores), count, values, places)
        pairs = zip(self.values.tolist(), self.places.tolist(), strict=True)
        return [list(zip(*pair, strict=True)) for pair in pairs]
