"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, sections 3.2.1 and 3.2.2)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.cache import write_cache

KeyValue = tuple[Tensor, Tensor]


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """softmax(Q K^T * scale) V over the positions that the mask allows.

    Exported, this is one ONNX `Attention` node.

    Args:
        query: (batch, num_heads, q_len, head_dim).
        key, value: (batch, num_kv_heads, kv_len, head_dim); each serves num_heads / num_kv_heads consecutive heads of
            the query (Ainslie et al. 2023, "GQA").
        mask: bool (batch, 1, q_len, kv_len), True where a query sees a key; every row sees at least one. Or a float of
            the scores' type that is added to them, (batch, 1 or num_heads, q_len, kv_len).
        scale: 1 / sqrt(head_dim) where it is None.

    Returns:
        (batch, num_heads, q_len, head_dim)
    """
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=grouped)


def attention_scores(query: Tensor, key: Tensor) -> Tensor:
    """Q K^T / sqrt(head_dim): (batch, num_heads, q_len, kv_len). Scaled so that the softmax keeps its gradients."""
    return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])


def attention_weights(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """The weights that `attention` gives each value, to look at: (batch, num_heads, q_len, kv_len), rows sum to 1."""
    return attention_scores(query, key).masked_fill(~mask, -math.inf).softmax(-1)


def causal_mask(positions: Tensor, kv_len: int, window: int | None = None) -> Tensor:
    """True where key position j stands at or before the query's own position, and less than `window` before it.

    One mask covers causality, rows of different lengths, and the part of a cache that is not written yet.

    Args:
        positions: int64 (batch, q_len), where each query stands in its row.
        kv_len: length of the keys; with a cache, its capacity.
        window: how many positions a query sees, its own among them; all where it is None.

    Returns:
        bool (batch, 1, q_len, kv_len)
    """
    keys, queries = torch.arange(kv_len, device=positions.device)[None, None], positions[:, :, None]
    seen = keys <= queries
    if window is not None:
        seen = seen & (keys > queries - window)
    return seen[:, None]


def source_mask(lengths: Tensor, q_len: int, source_len: int) -> Tensor:
    """True where a source position exists.

    Args:
        lengths: int64 (batch,), each row's source length, at least 1.
        q_len: spelled out in the result, since ONNX Runtime's Attention takes no broadcast mask.
        source_len: the padded length.

    Returns:
        bool (batch, 1, q_len, source_len)
    """
    exists = torch.arange(source_len, device=lengths.device)[None] < lengths[:, None]
    return exists[:, None, None].expand(-1, 1, q_len, source_len)


class MultiHeadAttention(nn.Module):
    """num_heads attentions side by side, each over head_dim = d_model / num_heads of the projected inputs.

    Args:
        d_model: width of inputs and outputs.
        num_heads: divides d_model.
        scale: of the scores; 1 / sqrt(head_dim) where it is None.
    """

    def __init__(self, d_model: int, num_heads: int, scale: float | None = None) -> None:
        super().__init__()
        self.num_heads, self.scale = num_heads, scale
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (batch, num_heads, len, head_dim)

    def key_value(self, x: Tensor) -> KeyValue:
        """Keys and values of x (batch, len, d_model): two of (batch, num_heads, len, head_dim)."""
        return self.split_heads(self.key(x)), self.split_heads(self.value(x))

    def attend(self, x: Tensor, key_value: KeyValue, mask: Tensor) -> Tensor:
        """Queries from x (batch, q_len, d_model) over given keys and values: (batch, q_len, d_model)."""
        attended = attention(self.split_heads(self.query(x)), *key_value, mask, self.scale)
        return self.output(attended.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Self-attention without a cache: (batch, len, d_model) to the same."""
        return self.attend(x, self.key_value(x), mask)

    def step(self, x: Tensor, past: KeyValue, cache_lengths: Tensor, mask: Tensor) -> tuple[Tensor, KeyValue]:
        """Self-attention of new tokens over a cache that they are first written into.

        Args:
            x: (batch, q_len, d_model), the new tokens.
            past: two of (batch, num_heads, capacity, head_dim).
            cache_lengths: int64 (batch,), tokens already in each row's cache.
            mask: bool (batch, 1, q_len, capacity).

        Returns:
            (batch, q_len, d_model), and the cache with the new tokens in it.
        """
        key, value = (write_cache(old, new, cache_lengths) for old, new in zip(past, self.key_value(x), strict=True))
        return self.attend(x, (key, value), mask), (key, value)
