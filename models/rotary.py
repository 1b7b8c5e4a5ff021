"""Rotary positions (Su et al. 2021, "RoFormer"): pairs of a head's numbers turned by their token's position."""

from __future__ import annotations

import torch
import torch.onnx.ops
from torch import Tensor

from edgeformer.models.configs.rope import Rope

Rotation = tuple[Tensor, Tensor]


def rotation(rope: Rope, positions: Tensor, dtype: torch.dtype) -> Rotation:
    """Cosines and sines of the angles at some positions.

    They are computed from the positions and not looked up, since a table as long as the contexts of today would be
    larger than a layer; in single precision whatever the model's, since half of it cannot count to 4096.

    Args:
        rope: the frequencies.
        positions: int64 (batch, q_len).
        dtype: of the result.

    Returns:
        two of (batch, q_len, head_dim / 2).
    """
    frequencies = torch.tensor(rope.frequencies, dtype=torch.float32, device=positions.device)
    angles = positions[:, :, None].float() * frequencies  # (batch, q_len, head_dim / 2)
    cosines, sines = angles.cos(), angles.sin()
    if rope.scale != 1:
        cosines, sines = cosines * rope.scale, sines * rope.scale
    return cosines.to(dtype), sines.to(dtype)


def rotate(x: Tensor, turned: Rotation, rope: Rope) -> Tensor:
    """Queries or keys (batch, num_heads, q_len, head_dim), turned: the same shape. Exports to `RotaryEmbedding`."""
    cosines, sines = turned
    if x.requires_grad:  # in training: the operator has no gradient
        return turned_by_hand(x, cosines[:, None], sines[:, None], rope.interleaved)
    return torch.onnx.ops.rotary_embedding(x, cosines, sines, interleaved=rope.interleaved)


def turned_by_hand(x: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool) -> Tensor:
    """What `RotaryEmbedding` computes; cosines and sines are (batch, 1, q_len, head_dim / 2)."""
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
    pair = first * cosines - second * sines, first * sines + second * cosines
    return torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
