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
    largest = np.maximum.reduce(logits, axis=-1, keepdims=True)
    length = logits.shape[-1]
    if length <= PART:
        return largest + np.log(np.add.reduce(np.exp(logits - largest), axis=-1, keepdims=True))
    work = np.empty_like(logits, shape=(*logits.shape[:-1], PART))
    total = np.zeros_like(largest)
    for begin in range(0, length, PART):
        part = work[..., : min(PART, length - begin)]
        np.subtract(logits[..., begin : begin + PART], largest, out=part)
        np.exp(part, out=part)
        total += np.add.reduce(part, axis=-1, keepdims=True)
    return largest + np.log(total)
