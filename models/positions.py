"""Where a token stands: the paper's sinusoids (section 3.5)."""

from __future__ import annotations

import torch
from torch import Tensor


def sinusoidal_positions(max_positions: int, d_model: int, *, interleaved: bool = True) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same.

    Args:
        max_positions, d_model: the shape.
        interleaved: as in the paper; else all sines stand before all cosines.

    Returns:
        float32 (max_positions, d_model), computed in float64.
    """
    rates = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(max_positions, dtype=torch.float64)[:, None] * rates  # (max_positions, d_model / 2)
    pairs = torch.stack((angles.sin(), angles.cos()), dim=-1 if interleaved else -2)
    return pairs.flatten(1).float()
