"""Log-probabilities from logits."""

from __future__ import annotations

import numpy as np

from edgeformer.runtime.backends import Floats


def log_softmax(logits: Floats) -> Floats:
    """Natural logarithm of softmax over the last axis, same shape, float32."""
    return logits - log_sum_exp(logits)


def log_sum_exp(logits: Floats) -> Floats:
    """Logarithm of the sum of exponentials over the last axis, which stays as an axis of length 1."""
    largest = np.maximum.reduce(logits, axis=-1, keepdims=True)
    return largest + np.log(np.add.reduce(np.exp(logits - largest), axis=-1, keepdims=True))
