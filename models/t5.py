"""T5 (Raffel et al. 2019) and its successors, readable from top to bottom.

Nothing has a bias but attention's scores, by distance; these are not scaled. Norms are RMS norms, before sublayers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.attention import MultiHeadAttention, causal_mask, source_mask
from edgeformer.models.configs.t5 import T5Config
from edgeformer.models.feed_forward import FeedForward, GatedFeedForward
from edgeformer.models.layers import (
    DecoderLayer,
    EncoderLayer,
    Residual,
    decode,
    decode_step,
    encoded_key_values,
)
from edgeformer.models.relative_positions import RelativeBias, masked_bias
from edgeformer.models.steps import positions_after, taken_at
from edgeformer.models.stored import Stored, renamed

# From this module's names to Hugging Face's, one after the other.
RULES = (
    (r"^(encoder|decoder)_bias\.", r"\1.block.0.layer.0.SelfAttention.relative_attention_bias."),
    (r"^(encoder|decoder)_norm\.", r"\1.final_layer_norm."),
    (r"^(encoder|decoder)_layers\.", r"\1.block."),
    (r"cross_attention\.", "layer.1.EncDecAttention."),
    (r"cross_residual\.norm", "layer.1.layer_norm"),
    (r"(\d)\.attention_residual\.norm", r"\1.layer.0.layer_norm"),
    (r"(\d)\.attention\.", r"\1.layer.0.SelfAttention."),
    (r"Attention\.(q|k|v|o)[a-z]+\.", r"Attention.\1."),
    (r"^(encoder.*)feed_forward", r"\1layer.1.feed_forward"),
    (r"^(decoder.*)feed_forward", r"\1layer.2.feed_forward"),
    (r"feed_forward_residual\.norm", "layer_norm"),
    (r"feed_forward\.outer", "DenseReluDense.wo"),
    (r"feed_forward\.gate", "DenseReluDense.wi_0"),
)


class T5Attention(MultiHeadAttention):
    """Attention without biases, over heads of any width, whose scores are not scaled; a float mask is added to them."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config.d_model, config.num_heads, scale=1.0)
        width = config.num_heads * config.head_dim
        self.query, self.key, self.value = (nn.Linear(config.d_model, width, bias=False) for _ in range(3))
        self.output = nn.Linear(width, config.d_model, bias=False)


def feed_forward(config: T5Config) -> FeedForward | GatedFeedForward:
    kind = GatedFeedForward if config.gated else FeedForward
    return kind(config.d_model, config.d_ff, config.activation, bias=False)


def norm(config: T5Config) -> nn.RMSNorm:
    return nn.RMSNorm(config.d_model, eps=config.norm_eps)


def residuals(config: T5Config, count: int) -> list[Residual]:
    return [Residual(norm(config), pre=True) for _ in range(count)]


def encoder_layer(config: T5Config) -> EncoderLayer:
    return EncoderLayer(T5Attention(config), feed_forward(config), residuals(config, 2))


def decoder_layer(config: T5Config) -> DecoderLayer:
    return DecoderLayer(T5Attention(config), T5Attention(config), feed_forward(config), residuals(config, 3))


class T5(nn.Module):
    """Encoder and decoder over one vocabulary; each side's layers share one bias by distance."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.head: nn.Linear | None = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.encoder_bias, self.decoder_bias = (
            RelativeBias(config.num_buckets, config.num_heads, config.max_distance, bidirectional=both)
            for both in (True, False)
        )
        # Any: iterating over an nn.ModuleList gives type checkers no more than Module
        self.encoder_layers: Any = nn.ModuleList(encoder_layer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers: Any = nn.ModuleList(decoder_layer(config) for _ in range(config.num_layers))
        self.encoder_norm, self.decoder_norm = norm(config), norm(config)

    def project(self, x: Tensor) -> Tensor:
        """Logits over the vocabulary."""
        x = self.decoder_norm(x)
        if self.config.scale_output:
            x = x * self.config.d_model**-0.5
        return F.linear(x, (self.head or self.embedding).weight)

    def causal_bias(self, positions: Tensor, kv_len: int) -> Tensor:
        """What is added to the scores of queries at int64 positions (batch, q_len) and keys from 0 on."""
        return masked_bias(self.decoder_bias(positions, kv_len), causal_mask(positions, kv_len))

    def encode(self, input_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        """Read the source once, as `edgeformer.models.protocols.EncoderDecoder` says."""
        source_len = input_ids.shape[1]
        positions = torch.arange(source_len, device=input_ids.device)[None]
        mask = source_mask(source_lengths, source_len, source_len)
        bias = masked_bias(self.encoder_bias(positions, source_len), mask)
        x = self.embedding(input_ids)
        for layer in self.encoder_layers:
            x = layer(x, bias)
        return encoded_key_values(self.decoder_layers, self.encoder_norm(x))

    def step(
        self,
        input_ids: Tensor,
        cache_lengths: Tensor,
        logits_at: Tensor,
        source_lengths: Tensor,
        past_key_values: Sequence[Tensor],
        encoder_key_values: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """New tokens after those in the caches, as `edgeformer.models.protocols.EncoderDecoder` says."""
        q_len = input_ids.shape[1]
        positions = positions_after(cache_lengths, q_len)
        causal = self.causal_bias(positions, past_key_values[0].shape[2])
        source = source_mask(source_lengths, q_len, encoder_key_values[0].shape[2])
        x, present = decode_step(
            self.decoder_layers,
            self.embedding(input_ids),
            cache_lengths,
            past_key_values,
            encoder_key_values,
            causal,
            source,
        )
        return self.project(taken_at(x, logits_at)), present

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Logits (batch, target_len, vocab_size) of int64 targets (batch, target_len), without a cache."""
        encoded = self.encode(source_ids, source_lengths)
        batch, target_len = target_ids.shape
        positions = torch.arange(target_len, device=target_ids.device).expand(batch, -1)
        causal = self.causal_bias(positions, target_len)
        source = source_mask(source_lengths, target_len, source_ids.shape[1])
        return self.project(decode(self.decoder_layers, self.embedding(target_ids), encoded, causal, source))

    def stored_as(self, name: str) -> Stored:
        """Where Hugging Face's checkpoints keep a parameter; the embedding matrix may have any of its names."""
        if name == "embedding.weight":
            return Stored("shared.weight", older=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"))
        if name == "head.weight":
            return Stored("lm_head.weight")
        inner = "DenseReluDense.wi_1" if self.config.gated else "DenseReluDense.wi"
        return Stored(renamed(name, (*RULES, (r"feed_forward\.inner", inner))))

    def leave_out(self, name: str) -> bool:
        """The embedding matrix is the projection where a checkpoint has no other.

        Its config does not always say so: Hugging Face's library, from version 5 on, writes that they are tied and
        stores both where they differ.
        """
        if name != "head.weight" or not self.config.tied:
            return False
        self.head = None
        return True

    def is_ignored(self, name: str) -> bool:
        """Copies of the embedding matrix, and a bias of cross-attention that was never used."""
        return name.endswith(("coder.embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight"))
