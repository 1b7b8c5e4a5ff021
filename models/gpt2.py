"""GPT-2 (Radford et al. 2019), readable from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.attention import KeyValue, MultiHeadAttention, causal_mask
from edgeformer.models.configs.gpt2 import Gpt2Config
from edgeformer.models.feed_forward import FeedForward
from edgeformer.models.steps import positions_after, taken_at
from edgeformer.models.stored import Stored, renamed

RULES = (
    (r"^layers\b", "transformer.h"),
    (r"^norm\b", "transformer.ln_f"),
    (r"^embedding\b", "transformer.wte"),
    (r"^positions\b", "transformer.wpe.weight"),
    (r"^projection\b", "lm_head"),
    ("attention_norm", "ln_1"),
    ("feed_forward_norm", "ln_2"),
    (r"attention\.(query|key|value)", "attn.c_attn"),
    (r"attention\.output", "attn.c_proj"),
    (r"feed_forward\.inner", "mlp.c_fc"),
    (r"feed_forward\.outer", "mlp.c_proj"),
)
PARTS = ("query", "key", "value")  # side by side in one matrix
MASKS = re.compile(r"\.attn\.(masked_)?bias$")


def score_scale(config: Gpt2Config, layer: int) -> float | None:
    """What a layer's products of queries and keys are multiplied with; None for the usual 1 / sqrt(head_dim)."""
    if config.scale_scores and not config.scale_scores_by_layer:
        return None
    scale = config.head_dim**-0.5 if config.scale_scores else 1.0
    return scale / (layer + 1) if config.scale_scores_by_layer else scale


class Layer(nn.Module):
    """Attention and a feed-forward, each over its normalized input and added to it."""

    def __init__(self, config: Gpt2Config, layer: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.attention = MultiHeadAttention(config.d_model, config.num_heads, score_scale(config, layer))
        self.feed_forward_norm = nn.LayerNorm(config.d_model, config.norm_eps)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + attended
        return x + self.feed_forward(self.feed_forward_norm(x))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.after_attention(x, self.attention(self.attention_norm(x), mask))

    def step(self, x: Tensor, past: KeyValue, cache_lengths: Tensor, mask: Tensor) -> tuple[Tensor, KeyValue]:
        attended, present = self.attention.step(self.attention_norm(x), past, cache_lengths, mask)
        return self.after_attention(x, attended), present


class Gpt2(nn.Module):
    """A language model."""

    base_prefix: ClassVar[str] = "transformer."

    def __init__(self, config: Gpt2Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Parameter(torch.zeros(config.max_positions, config.d_model))
        # Any: iterating over an nn.ModuleList gives type checkers no more than Module
        self.layers: Any = nn.ModuleList(Layer(config, i) for i in range(config.num_layers))
        self.norm = nn.LayerNorm(config.d_model, config.norm_eps)
        if not config.tied:
            self.projection = nn.Linear(config.d_model, config.vocab_size, bias=False)

    @staticmethod
    def stored_as(name: str) -> Stored:
        """Where Hugging Face's checkpoints keep a parameter: queries, keys and values in one, matrices transposed."""
        stored = renamed(name, RULES)
        part = next((i for i, part in enumerate(PARTS) if f"attention.{part}." in name), None)
        is_matrix = re.search(r"\.c_\w+\.weight$", stored) is not None
        return Stored(stored, transposed=is_matrix, part=(0, 1) if part is None else (part, len(PARTS)))

    def is_ignored(self, name: str) -> bool:
        """Causal masks that older versions stored, and a copy of the tied embeddings."""
        return MASKS.search(name) is not None or (self.config.tied and name == "lm_head.weight")

    def embed(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Token and position embeddings of int64 (batch, len) ids at int64 positions: (batch, len, d_model)."""
        known = positions.clamp(max=self.config.max_positions - 1)  # padding may stand past the table
        return self.embedding(input_ids) + F.embedding(known, self.positions)

    def project(self, x: Tensor) -> Tensor:
        """Logits over the vocabulary."""
        x = self.norm(x)
        return F.linear(x, self.embedding.weight) if self.config.tied else self.projection(x)

    def step(
        self, input_ids: Tensor, cache_lengths: Tensor, logits_at: Tensor, past_key_values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """New tokens after those in the caches, as `edgeformer.models.protocols.Decoder` says."""
        positions = positions_after(cache_lengths, input_ids.shape[1])
        mask = causal_mask(positions, past_key_values[0].shape[2])
        x, present = self.embed(input_ids, positions), list[Tensor]()
        for i, layer in enumerate(self.layers):
            x, key_value = layer.step(x, (past_key_values[2 * i], past_key_values[2 * i + 1]), cache_lengths, mask)
            present += key_value
        return self.project(taken_at(x, logits_at)), present

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits (batch, len, vocab_size) of int64 (batch, len), without a cache."""
        batch, length = input_ids.shape
        positions = positions_after(input_ids.new_zeros(batch), length)
        x, mask = self.embed(input_ids, positions), causal_mask(positions, length)
        for layer in self.layers:
            x = layer(x, mask)
        return self.project(x)
