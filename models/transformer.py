"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), readable from top to bottom.

`forward` is the whole model at once, for training. `encode` and `step` are the same computation cut where inference
cuts it: the source is read once, and each step adds tokens to a cache. They export as the encoder and step graphs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.attention import causal_mask, source_mask
from edgeformer.models.configs.paper import TransformerConfig
from edgeformer.models.layers import decode, decode_step, decoder_layer, encoded_key_values, encoder_layer
from edgeformer.models.positions import sinusoidal_positions
from edgeformer.models.steps import positions_after, taken_at


class Transformer(nn.Module):
    """Encoder and decoder over one vocabulary, with one embedding matrix for input, output and projection."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            self.compute_tables()
        self.dropout = nn.Dropout(config.dropout)
        # Any: iterating over an nn.ModuleList gives type checkers no more than Module
        self.encoder_layers: Any = nn.ModuleList(encoder_layer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers: Any = nn.ModuleList(decoder_layer(config) for _ in range(config.num_decoder_layers))
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.norm_placement == "pre" else nn.Identity()
            for _ in range(2)
        )
        self.initialize()

    def compute_tables(self) -> None:
        """The sinusoids, which are computed and not stored."""
        if self.config.positions == "sinusoidal":
            table = sinusoidal_positions(self.config.max_positions, self.config.d_model)
            self.register_buffer("positions", table, persistent=False)

    def initialize(self) -> None:
        """Glorot uniform for linear maps; embeddings of variance 1 / d_model, which the scaling brings back to 1."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        std = 1 / math.sqrt(self.config.d_model)
        nn.init.normal_(self.embedding.weight, std=std)
        if self.config.positions == "learned":
            nn.init.normal_(self.positions, std=std)

    def embed(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Token and position embeddings of int64 (batch, len) ids at int64 positions: (batch, len, d_model)."""
        x = self.embedding(input_ids)
        if self.config.scale_embeddings:
            x = x * math.sqrt(self.config.d_model)
        return self.dropout(x + F.embedding(positions, self.positions))

    def project(self, x: Tensor) -> Tensor:
        """Logits over the vocabulary, by the transposed embedding matrix."""
        return F.linear(self.decoder_norm(x), self.embedding.weight)

    def encode(self, input_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        """Read the source once; cross-attention's keys and values come out, so that no step computes them again.

        Args:
            input_ids: int64 (batch, source_len), right-padded with any id.
            source_lengths: int64 (batch,), at least 1 each.

        Returns:
            key and value for each decoder layer in turn, each (batch, num_heads, source_len, head_dim).
        """
        source_len = input_ids.shape[1]
        x = self.embed(input_ids, torch.arange(source_len, device=input_ids.device)[None])
        mask = source_mask(source_lengths, source_len, source_len)
        for layer in self.encoder_layers:
            x = layer(x, mask)
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
        """Any number of new tokens per row, after any number that its cache already holds.

        Args:
            input_ids: int64 (batch, q_len), right-padded with any id.
            cache_lengths: int64 (batch,), tokens already in each row's cache.
            logits_at: int64 (batch, n), positions in q_len whose logits are wanted.
            source_lengths: int64 (batch,).
            past_key_values: key and value for each layer in turn, each (batch, num_heads, capacity, head_dim).
            encoder_key_values: what `encode` returned.

        Returns:
            logits (batch, n, vocab_size), and the caches with the new tokens written.
        """
        q_len = input_ids.shape[1]
        positions = positions_after(cache_lengths, q_len)
        # A padded query may stand past the table; its value is never used, but its index must exist.
        x = self.embed(input_ids, positions.clamp(max=self.config.max_positions - 1))
        causal = causal_mask(positions, past_key_values[0].shape[2])
        source = source_mask(source_lengths, q_len, encoder_key_values[0].shape[2])
        x, present = decode_step(
            self.decoder_layers, x, cache_lengths, past_key_values, encoder_key_values, causal, source
        )
        return self.project(taken_at(x, logits_at)), present

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Teacher-forced logits, without a cache.

        Args:
            source_ids: int64 (batch, source_len), right-padded.
            source_lengths: int64 (batch,).
            target_ids: int64 (batch, target_len), beginning with the start token, right-padded.

        Returns:
            (batch, target_len, vocab_size)
        """
        encoded = self.encode(source_ids, source_lengths)
        batch, target_len = target_ids.shape
        positions = torch.arange(target_len, device=target_ids.device).expand(batch, -1)
        x = self.embed(target_ids, positions)
        causal = causal_mask(positions, target_len)
        source = source_mask(source_lengths, target_len, source_ids.shape[1])
        return self.project(decode(self.decoder_layers, x, encoded, causal, source))
