"""BART, mBART and Marian, readable from top to bottom: the paper's Transformer with other embeddings and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.attention import causal_mask, source_mask
from edgeformer.models.configs.bart import BartConfig
from edgeformer.models.layers import decode, decode_step, decoder_layer, encoded_key_values, encoder_layer
from edgeformer.models.positions import sinusoidal_positions
from edgeformer.models.steps import positions_after, taken_at
from edgeformer.models.stored import Stored, renamed

# From this module's names to Hugging Face's, one after the other.
RULES = (
    (r"^(encoder|decoder)_(\w+)", r"model.\1.\2"),
    (r"embeddings\.positions$", "embed_positions.weight"),
    (r"embeddings\.norm\.", "layernorm_embedding."),
    (r"(encoder|decoder)\.norm\.", r"\1.layer_norm."),
    (r"cross_attention\.", "encoder_attn."),
    (r"cross_residual\.norm", "encoder_attn_layer_norm"),
    (r"attention_residual\.norm", "self_attn_layer_norm"),
    (r"attention\.", "self_attn."),
    (r"\.(query|key|value|output)\.", r".\1_proj."),
    (r"(q|k|v)[a-z]+_proj", r"\1_proj"),
    (r"output_proj", "out_proj"),
    (r"feed_forward\.inner", "fc1"),
    (r"feed_forward\.outer", "fc2"),
    (r"feed_forward_residual\.norm", "final_layer_norm"),
)
SHARED, ENCODER, DECODER = (
    f"model.{name}.weight" for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
)


class Embeddings(nn.Module):
    """What is added to one side's tokens: where they stand, and a norm of the sum.

    A table in the checkpoint is used even where the config asks for sinusoids, as Hugging Face does; they are what
    there is without one.
    """

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.max_positions, self.d_model = config.max_positions, config.d_model
        self.offset = 0 if config.sinusoidal else config.position_offset
        table = self.sinusoids() if config.sinusoidal else torch.randn(self.max_positions + self.offset, self.d_model)
        self.positions = nn.Parameter(table)
        self.norm = nn.LayerNorm(self.d_model) if config.embedding_norm else nn.Identity()

    def sinusoids(self) -> Tensor:
        return sinusoidal_positions(self.max_positions, self.d_model, interleaved=False)

    def leave_out_positions(self) -> None:
        del self.positions
        self.register_buffer("positions", self.sinusoids(), persistent=False)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Embeddings of tokens (batch, len, d_model) at int64 positions (batch, len): the same shape."""
        # A padded token may stand past the table; its value is never used, but its index must exist.
        at = positions.clamp(max=self.max_positions - 1) + self.offset
        return self.norm(tokens + F.embedding(at, self.positions))


class Bart(nn.Module):
    """Encoder and decoder, with one embedding matrix for input, output and projection, or one for each."""

    base_prefix: ClassVar[str] = "model."

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.config = config
        d_model = config.d_model
        self.embedding = nn.Embedding(config.source_vocab_size, d_model)
        self.decoder_embedding = None if config.shared else nn.Embedding(config.vocab_size, d_model)
        self.head = None if config.tied else nn.Linear(d_model, config.vocab_size, bias=False)
        self.logits_bias: nn.Parameter | None = nn.Parameter(torch.zeros(1, config.vocab_size))
        self.encoder_embeddings, self.decoder_embeddings = Embeddings(config), Embeddings(config)
        # Any: iterating over an nn.ModuleList gives type checkers no more than Module
        self.encoder_layers: Any = nn.ModuleList(
            encoder_layer(config.encoder) for _ in range(config.encoder.num_layers)
        )
        self.decoder_layers: Any = nn.ModuleList(
            decoder_layer(config.decoder) for _ in range(config.decoder.num_layers)
        )
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(d_model) if config.final_norm else nn.Identity() for _ in range(2)
        )

    def embed_source(self, input_ids: Tensor) -> Tensor:
        """Embeddings of int64 (batch, source_len): (batch, source_len, d_model)."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        return self.encoder_embeddings(self.scaled(self.embedding(input_ids)), positions)

    def embed_target(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        """Embeddings of int64 (batch, len) at int64 positions (batch, len): (batch, len, d_model)."""
        embedding = self.decoder_embedding or self.embedding
        return self.decoder_embeddings(self.scaled(embedding(input_ids)), positions)

    def scaled(self, tokens: Tensor) -> Tensor:
        return tokens * math.sqrt(self.config.d_model) if self.config.scale_embeddings else tokens

    def project(self, x: Tensor) -> Tensor:
        """Logits over the decoder's vocabulary."""
        matrix = self.head or self.decoder_embedding or self.embedding
        logits = F.linear(self.decoder_norm(x), matrix.weight)
        return logits if self.logits_bias is None else logits + self.logits_bias

    def encode(self, input_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        """Read the source once, as `edgeformer.models.protocols.EncoderDecoder` says."""
        source_len = input_ids.shape[1]
        x = self.embed_source(input_ids)
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
        """New tokens after those in the caches, as `edgeformer.models.protocols.EncoderDecoder` says."""
        q_len = input_ids.shape[1]
        positions = positions_after(cache_lengths, q_len)
        x = self.embed_target(input_ids, positions)
        causal = causal_mask(positions, past_key_values[0].shape[2])
        source = source_mask(source_lengths, q_len, encoder_key_values[0].shape[2])
        x, present = decode_step(
            self.decoder_layers, x, cache_lengths, past_key_values, encoder_key_values, causal, source
        )
        return self.project(taken_at(x, logits_at)), present

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Logits (batch, target_len, vocab_size) of int64 targets (batch, target_len), without a cache."""
        encoded = self.encode(source_ids, source_lengths)
        batch, target_len = target_ids.shape
        positions = torch.arange(target_len, device=target_ids.device).expand(batch, -1)
        x = self.embed_target(target_ids, positions)
        causal = causal_mask(positions, target_len)
        source = source_mask(source_lengths, target_len, source_ids.shape[1])
        return self.project(decode(self.decoder_layers, x, encoded, causal, source))

    def stored_as(self, name: str) -> Stored:
        """Where Hugging Face's checkpoints keep a parameter; a shared matrix may have any of its names."""
        if name == "embedding.weight":
            return Stored(SHARED, older=(ENCODER, DECODER)) if self.config.shared else Stored(ENCODER, older=(SHARED,))
        others = {
            "decoder_embedding.weight": Stored(DECODER, older=(SHARED,)),
            "head.weight": Stored("lm_head.weight"),
            "logits_bias": Stored("final_logits_bias"),
        }
        return others.get(name) or Stored(renamed(name, RULES))

    def leave_out(self, name: str) -> bool:
        """Checkpoints may do without a bias of the logits, and without positions that are computed."""
        if name == "logits_bias":
            self.logits_bias = None
        elif self.config.sinusoidal and name == "encoder_embeddings.positions":
            self.encoder_embeddings.leave_out_positions()
        elif self.config.sinusoidal and name == "decoder_embeddings.positions":
            self.decoder_embeddings.leave_out_positions()
        else:
            return False
        return True

    def is_ignored(self, name: str) -> bool:
        """Copies of matrices that are shared or tied, and version numbers of fairseq's."""
        copies = (SHARED, ENCODER, DECODER, "lm_head.weight" if self.config.tied else "")
        return name in copies or f"model.{name}" in copies or name.endswith(("encoder.version", "decoder.version"))
