"""A layer of the encoder and one of the decoder (Vaswani et al. 2017, section 3.1), pre-norm or post-norm."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from edgeformer.models.attention import KeyValue, MultiHeadAttention
from edgeformer.models.configs.activations import Activation
from edgeformer.models.feed_forward import FeedForward


class LayerConfig(Protocol):
    """What shapes a layer."""

    @property
    def d_model(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def activation(self) -> Activation: ...
    @property
    def norm_placement(self) -> str: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def dropout(self) -> float: ...


class Residual(nn.Module):
    """LayerNorm(x + Sublayer(x)) as in the paper, or x + Sublayer(LayerNorm(x)) where the config asks for pre-norm."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm_placement == "pre"

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        total = x + self.dropout(sublayer)
        return total if self.pre else self.norm(total)


class EncoderLayer(nn.Module):
    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.attention_residual, self.feed_forward_residual = Residual(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_residual.after(x, self.attention(self.attention_residual.before(x), mask))
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))


class DecoderLayer(nn.Module):
    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.cross_attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.attention_residual, self.cross_residual, self.feed_forward_residual = (Residual(config) for _ in range(3))

    def after_attention(self, x: Tensor, attended: Tensor, encoded: KeyValue, source: Tensor) -> Tensor:
        x = self.attention_residual.after(x, attended)
        x = self.cross_residual.after(x, self.cross_attention.attend(self.cross_residual.before(x), encoded, source))
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))

    def forward(self, x: Tensor, encoded: KeyValue, causal: Tensor, source: Tensor) -> Tensor:
        attended = self.attention(self.attention_residual.before(x), causal)
        return self.after_attention(x, attended, encoded, source)

    def step(
        self, x: Tensor, past: KeyValue, encoded: KeyValue, cache_lengths: Tensor, causal: Tensor, source: Tensor
    ) -> tuple[Tensor, KeyValue]:
        attended, present = self.attention.step(self.attention_residual.before(x), past, cache_lengths, causal)
        return self.after_attention(x, attended, encoded, source), present
