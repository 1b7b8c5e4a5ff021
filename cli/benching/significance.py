"""Whether two sets of calls differ by more than chance: Mann and Whitney's test, and Holm's correction for many.

H. B. Mann and D. R. Whitney, 1947; S. Holm, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def mann_whitney(one: Sequence[float], other: Sequence[float]) -> float:
    """The probability that two draws from one distribution are ranked as far apart as these, in either direction.

    By the normal approximation, with corrections for ties and for continuity: good from about 8 samples a side.
    """
    first, second = len(one), len(other)
    values = np.concatenate([np.asarray(one, np.float64), np.asarray(other, np.float64)])
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[place]
    total = first + second
    above = ranks[:first].sum() - first * (first + 1) / 2
    ties = float((counts**3 - counts).sum()) / (total * (total - 1)) if total > 1 else 0.0
    deviation = math.sqrt(first * second / 12 * (total + 1 - ties))
    if not deviation:
        return 1.0
    distance = max(abs(above - first * second / 2) - 0.5, 0.0) / deviation
    return math.erfc(distance / math.sqrt(2))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Probabilities that may be held against one bound together, however many they are."""
    order = sorted(range(len(probabilities)), key=probabilities.__getitem__)
    corrected, least = [1.0] * len(probabilities), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, probabilities[index] * (len(probabilities) - rank)))
        corrected[index] = least
    return corrected
