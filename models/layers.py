"""A layer of the encoder and one of the decoder (Vaswani et al. 2017, section 3.1), and stacks of them.

What differs between families, such as the kind of norm, is in the parts that a layer is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from edgeformer.models.attention import KeyValue, MultiHeadAttention
from edgeformer.models.configs.activations import Activation
from edgeformer.models.feed_forward import FeedForward


class LayerConfig(Protocol):
    """What shapes a layer with biases and layer norms."""

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
    """Norm(x + Sublayer(x)) as in the paper, or x + Sublayer(Norm(x)) with pre-norm."""

    def __init__(self, norm: nn.Module, *, pre: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.pre = norm, pre
        self.dropout = nn.Dropout(dropout)

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        total = x + self.dropout(sublayer)
        return total if self.pre else self.norm(total)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward block, each with a residual."""

    def __init__(self, attention: MultiHeadAttention, feed_forward: nn.Module, residuals: Iterable[Residual]) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.attention_residual, self.feed_forward_residual = residuals

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_residual.after(x, self.attention(self.attention_residual.before(x), mask))
        return self.feed_forward_residual.after(x, self.feed_forward(self.feed_forward_residual.before(x)))


class DecoderLayer(nn.Module):
    """Self-attention, attention over the source, and a feed-forward block, each with a residual."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        residuals: Iterable[Residual],
    ) -> None:
        super().__init__()
        self.attention, self.cross_attention, self.feed_forward = attention, cross_attention, feed_forward
        self.attention_residual, self.cross_residual, self.feed_forward_residual = residuals

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


def encoder_layer(config: LayerConfig) -> EncoderLayer:
    """An encoder's layer as the paper has it, but for what the config says."""
    attention = MultiHeadAttention(config.d_model, config.num_heads)
    return EncoderLayer(attention, feed_forward(config), residuals(config, 2))


def decoder_layer(config: LayerConfig) -> DecoderLayer:
    """A decoder's layer as the paper has it, but for what the config says."""
    attention, cross_attention = (MultiHeadAttention(config.d_model, config.num_heads) for _ in range(2))
    return DecoderLayer(attention, cross_attention, feed_forward(config), residuals(config, 3))


def feed_forward(config: LayerConfig) -> FeedForward:
    return FeedForward(config.d_model, config.d_ff, config.activation)


def residuals(config: LayerConfig, count: int) -> list[Residual]:
    pre = config.norm_placement == "pre"
    return [
        Residual(nn.LayerNorm(config.d_model, eps=config.norm_eps), pre=pre, dropout=config.dropout)
        for _ in range(count)
    ]


def of_layer(tensors: Sequence[Tensor], i: int) -> KeyValue:
    """Key and value of layer i, out of those of all layers in turn."""
    return tensors[2 * i], tensors[2 * i + 1]


def encoded_key_values(decoder_layers: Any, x: Tensor) -> list[Tensor]:
    """Cross-attention's key and value of what an encoder returned, for each layer of the decoder in turn."""
    return [tensor for layer in decoder_layers for tensor in layer.cross_attention.key_value(x)]


def decode(layers: Any, x: Tensor, encoder_key_values: Sequence[Tensor], causal: Tensor, source: Tensor) -> Tensor:
    """All layers of a decoder, without a cache: (batch, target_len, d_model) to the same."""
    for i, layer in enumerate(layers):
        x = layer(x, of_layer(encoder_key_values, i), causal, source)
    return x


def decode_step(
    layers: Any,
    x: Tensor,
    cache_lengths: Tensor,
    past_key_values: Sequence[Tensor],
    encoder_key_values: Sequence[Tensor],
    causal: Tensor,
    source: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """All layers of a decoder, over caches: (batch, q_len, d_model) to the same, and the caches with it written."""
    present: list[Tensor] = []
    for i, layer in enumerate(layers):
        past, encoded = of_layer(past_key_values, i), of_layer(encoder_key_values, i)
        x, key_value = layer.step(x, past, encoded, cache_lengths, causal, source)
        present += key_value
    return x, present
