"""A language model that the project has never seen: what `edgeformer export own_decoder:make` is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.attention import attention, causal_mask
from edgeformer.models.cache import write_cache


@dataclasses.dataclass(frozen=True)
class Config:
    """No two sizes are the same, so that none can stand in for another."""

    vocab_size: int = 31
    num_layers: int = 2
    num_heads: int = 6
    num_kv_heads: int = 3
    head_dim: int = 8
    max_positions: int = 80
    pad_token_id: int = 0
    start_token_id: int = 1
    eos_token_ids: tuple[int, ...] = (2,)
    d_model: int = 36


class Layer(nn.Module):
    """Attention and a feed-forward from the same input, side by side."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.d_model, config.num_heads * config.head_dim)
        self.key = nn.Linear(config.d_model, config.num_kv_heads * config.head_dim)
        self.value = nn.Linear(config.d_model, config.num_kv_heads * config.head_dim)
        self.output = nn.Linear(config.num_heads * config.head_dim, config.d_model)
        self.norm = nn.LayerNorm(config.d_model)
        self.feed_forward = nn.Sequential(nn.Linear(config.d_model, 52), nn.SiLU(), nn.Linear(52, config.d_model))

    def forward(
        self, x: Tensor, mask: Tensor, past: tuple[Tensor, Tensor] | None = None, cache_lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = self.norm(x)
        query, key, value = (
            linear(y).unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)  # (batch, heads, q_len, head_dim)
            for linear in (self.query, self.key, self.value)
        )
        if past is not None and cache_lengths is not None:
            key, value = write_cache(past[0], key, cache_lengths), write_cache(past[1], value, cache_lengths)
        attended = self.output(attention(query, key, value, mask).transpose(1, 2).flatten(2))
        return x + attended + self.feed_forward(y), (key, value)


class OwnDecoder(nn.Module):
    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config = config or Config()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_positions, config.d_model)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))

    def forward(self, input_ids: Tensor) -> Tensor:
        batch, length = input_ids.shape
        positions = torch.arange(length).expand(batch, -1)
        x = self.embedding(input_ids) + self.positions(positions)
        for layer in self.layers:
            x, _ = layer(x, causal_mask(positions, length))
        return F.linear(x, self.embedding.weight)

    def step(
        self, input_ids: Tensor, cache_lengths: Tensor, logits_at: Tensor, past_key_values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        batch, q_len = input_ids.shape
        positions = cache_lengths[:, None] + torch.arange(q_len)
        x = self.embedding(input_ids) + self.positions(positions.clamp(max=self.config.max_positions - 1))
        mask, present = causal_mask(positions, past_key_values[0].shape[2]), list[Tensor]()
        for i, layer in enumerate(self.layers):
            x, written = layer(x, mask, (past_key_values[2 * i], past_key_values[2 * i + 1]), cache_lengths)
            present += written
        return F.linear(x[torch.arange(batch)[:, None], logits_at], self.embedding.weight), present


def make() -> OwnDecoder:
    """Always the same weights, far enough from uniform that greedy search goes somewhere."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = OwnDecoder()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2.0)
    return model.eval()
