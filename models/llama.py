"""LLaMA (Touvron et al. 2023), readable from top to bottom; Mistral, Qwen2 and Qwen3 differ by a few choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.attention import KeyValue, attention, causal_mask
from edgeformer.models.cache import write_cache
from edgeformer.models.configs.llama import LlamaConfig
from edgeformer.models.feed_forward import GatedFeedForward
from edgeformer.models.rotary import Rotation, rotate, rotation
from edgeformer.models.steps import positions_after, taken_at
from edgeformer.models.stored import Stored, renamed

RULES = (
    (r"^(layers|norm)\b", r"model.\1"),
    (r"^embedding\b", "model.embed_tokens"),
    (r"^projection\b", "lm_head"),
    ("attention_norm", "input_layernorm"),
    ("feed_forward_norm", "post_attention_layernorm"),
    (r"attention\.([qk])\w+_norm", r"self_attn.\1_norm"),
    (r"attention\.([qkvo])\w+", r"self_attn.\1_proj"),
    (r"feed_forward\.gate", "mlp.gate_proj"),
    (r"feed_forward\.inner", "mlp.up_proj"),
    (r"feed_forward\.outer", "mlp.down_proj"),
)


class Attention(nn.Module):
    """Grouped heads (Ainslie et al. 2023) whose queries and keys are turned by their positions."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.rope, self.head_dim = config.rope, config.head_dim
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.query = nn.Linear(config.d_model, width, bias=config.query_key_value_bias)
        self.key = nn.Linear(config.d_model, kv_width, bias=config.query_key_value_bias)
        self.value = nn.Linear(config.d_model, kv_width, bias=config.query_key_value_bias)
        self.output = nn.Linear(width, config.d_model, bias=config.output_bias)
        self.query_norm, self.key_norm = (
            nn.RMSNorm(config.head_dim, config.norm_eps) if config.query_key_norm else nn.Identity() for _ in range(2)
        )

    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))  # (batch, q_len, heads, head_dim)

    def forward(
        self, x: Tensor, turned: Rotation, mask: Tensor, cache_lengths: Tensor, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """New tokens over a cache that they are first written into, or over themselves where there is none."""
        query = self.query_norm(self.split_heads(self.query(x))).transpose(1, 2)  # (batch, num_heads, q_len, head_dim)
        key = self.key_norm(self.split_heads(self.key(x))).transpose(1, 2)  # (batch, num_kv_heads, q_len, head_dim)
        value = self.split_heads(self.value(x)).transpose(1, 2)  # the same
        query, key = rotate(query, turned, self.rope), rotate(key, turned, self.rope)
        if past is not None:
            key, value = write_cache(past[0], key, cache_lengths), write_cache(past[1], value, cache_lengths)
        attended = attention(query, key, value, mask)
        return self.output(attended.transpose(1, 2).flatten(2)), (key, value)


class Layer(nn.Module):
    """Attention and a gated feed-forward, each over its normalized input and added to it."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.d_model, config.norm_eps)
        self.feed_forward = GatedFeedForward(
            config.d_model, config.d_ff, config.activation, bias=config.feed_forward_bias
        )

    def forward(
        self, x: Tensor, turned: Rotation, mask: Tensor, cache_lengths: Tensor, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        attended, key_value = self.attention(self.attention_norm(x), turned, mask, cache_lengths, past)
        x = x + attended
        return x + self.feed_forward(self.feed_forward_norm(x)), key_value


class Llama(nn.Module):
    """A language model."""

    base_prefix: ClassVar[str] = "model."

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        # Any: iterating over an nn.ModuleList gives type checkers no more than Module
        self.layers: Any = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.d_model, config.norm_eps)
        if not config.tied:
            self.projection = nn.Linear(config.d_model, config.vocab_size, bias=False)

    @staticmethod
    def stored_as(name: str) -> Stored:
        """Where Hugging Face's checkpoints keep a parameter."""
        return Stored(renamed(name, RULES))

    def is_ignored(self, name: str) -> bool:
        """Frequencies, which are computed, and a copy of the tied embeddings."""
        return name.endswith("rotary_emb.inv_freq") or (self.config.tied and name == "lm_head.weight")

    def read(
        self, input_ids: Tensor, cache_lengths: Tensor, past_key_values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Hidden states (batch, q_len, d_model) of new tokens, and keys and values; without a past, of them alone."""
        q_len = input_ids.shape[1]
        kv_len = past_key_values[0].shape[2] if past_key_values else q_len
        positions = positions_after(cache_lengths, q_len)
        x, present = self.embedding(input_ids), list[Tensor]()
        turned = rotation(self.config.rope, positions, x.dtype)
        masks = {window: causal_mask(positions, kv_len, window) for window in dict.fromkeys(self.config.windows)}
        for i, (layer, window) in enumerate(zip(self.layers, self.config.windows, strict=True)):
            past = (past_key_values[2 * i], past_key_values[2 * i + 1]) if past_key_values else None
            x, key_value = layer(x, turned, masks[window], cache_lengths, past)
            present += key_value
        return self.norm(x), present

    def project(self, x: Tensor) -> Tensor:
        """Logits over the vocabulary."""
        return F.linear(x, self.embedding.weight) if self.config.tied else self.projection(x)

    def step(
        self, input_ids: Tensor, cache_lengths: Tensor, logits_at: Tensor, past_key_values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """New tokens after those in the caches, as `edgeformer.models.protocols.Decoder` says."""
        x, present = self.read(input_ids, cache_lengths, past_key_values)
        return self.project(taken_at(x, logits_at)), present

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits (batch, len, vocab_size) of int64 (batch, len), without a cache."""
        return self.project(self.read(input_ids, input_ids.new_zeros(input_ids.shape[0]), ())[0])
