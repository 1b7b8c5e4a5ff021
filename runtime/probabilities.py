"""Log-probabilities from logits."""

from __future__ import annotations

import numpy as np

from edgeformer.runtime.backends import Floats


def log_softmax(logits: Floats) -> Floats:
    """Natural logarithm of softmax over the last axis, same shape, float32."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted
