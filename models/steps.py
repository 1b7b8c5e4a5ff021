"""What every step does with its inputs."""

from __future__ import annotations

import torch
from torch import Tensor


def positions_after(cache_lengths: Tensor, q_len: int) -> Tensor:
    """Where new tokens stand in their rows.

    Padded queries may stand past the last position of a model: who looks positions up in a table clamps them.

    Args:
        cache_lengths: int64 (batch,), tokens already in each row's cache.
        q_len: new tokens.

    Returns:
        int64 (batch, q_len)
    """
    return cache_lengths[:, None] + torch.arange(q_len, device=cache_lengths.device)


def taken_at(x: Tensor, logits_at: Tensor) -> Tensor:
    """The hidden states whose logits are wanted.

    Args:
        x: (batch, q_len, d_model).
        logits_at: int64 (batch, n), positions in q_len.

    Returns:
        (batch, n, d_model)
    """
    return x[torch.arange(x.shape[0], device=x.device)[:, None], logits_at]
