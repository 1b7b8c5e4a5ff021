"""Log-probabilities from logits."""

from __future__ import annotations

import numpy as np

from edgeformer.runtime.backends import Floats

PART = 2**14  # numbers of a row that are looked at together, so that what is between stays in the core's cache


def log_softmax(logits: Floats) -> Floats:
    """Natural logarithm of softmax over the last axis, same shape, float32."""
    return logits - log_sum_exp(logits)


def log_sum_exp(logits: Floats) -> Floats:
    """Logarithm of the sum of exponentials over the last axis, which stays as an axis of length 1."""
    flat = logits.reshape(-1, logits.shape[-1])
    return SumExp().log(flat, np.maximum.reduce(flat, axis=-1)).reshape(*logits.shape[:-1], 1)


class SumExp:
    """Sums of exponentials of rows, with memory that is kept from one call to the next."""

    def __init__(self) -> None:
        self.work = np.empty((0, 0), np.float32)

    def log(self, logits: Floats, largest: Floats) -> Floats:
        """Logarithm of each row's sum of exponentials, (rows,).

        Args:
            logits: float32 (rows, n).
            largest: (rows,), of each.
        """
        rows, length = logits.shape
        width = min(length, PART)
        if self.work.shape != (rows, width):
            self.work = np.empty((rows, width), np.float32)
        column = largest[:, None]
        if length <= PART:
            sums = self.of_part(logits, column)
        else:
            sums = np.zeros(rows, np.float32)
            for begin in range(0, length, PART):
                sums += self.of_part(logits[:, begin : begin + PART], column)
        np.log(sums, sums)
        sums += largest
        return sums

    def of_part(self, logits: Floats, largest: Floats) -> Floats:
        """Sums of exponentials, less the largest (rows, 1), (rows,)."""
        work = self.work[:, : logits.shape[1]]
        np.subtract(logits, largest, work)
        np.exp(work, work)
        sums: Floats = np.add.reduce(work, 1)
        return sums
