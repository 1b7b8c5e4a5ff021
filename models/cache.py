"""Writing new keys and values into a cache, as one operator that exports to ONNX `TensorScatter`."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("edgeformer::write_cache", mutates_args=())
def write_cache(cache: Tensor, update: Tensor, cache_lengths: Tensor) -> Tensor:
    """Copy of `cache` with `update` written behind each row's length (ONNX `TensorScatter`, mode linear).

    Args:
        cache: (batch, num_heads, capacity, head_dim).
        update: (batch, num_heads, q_len, head_dim).
        cache_lengths: int64 (batch,); each plus q_len is at most capacity.

    Returns:
        (batch, num_heads, capacity, head_dim)
    """
    written = cache.clone()
    at = cache_lengths[:, None] + torch.arange(update.shape[2], device=cache.device)  # (batch, q_len)
    rows = torch.arange(cache.shape[0], device=cache.device)[:, None]
    written[rows, :, at] = update.transpose(1, 2)
    return written


@write_cache.register_fake
def _(cache: Tensor, update: Tensor, cache_lengths: Tensor) -> Tensor:
    return torch.empty_like(cache)
