"""What a module must offer to be exported. A module of one's own needs nothing else of this project.

The kind is told by the methods: `step` alone makes a decoder (a language model), `encode` and `step` make an
encoder-decoder, `encode` alone an encoder. `forward` is the whole model at once, without a cache: the reference that
every artifact is compared with.

Everywhere, `input_ids` are int64 (batch, q_len or source_len), right-padded with any id; what padding computes is never
used, but its indices must exist (a table of positions is read with clamped positions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from torch import Tensor

Kind = Literal["encoder-decoder", "decoder", "encoder"]


class DecoderConfig(Protocol):
    """The numbers that shape a decoder's caches and outputs, and its tokens with a meaning.

    Attributes:
        vocab_size: of the logits.
        num_layers: layers that keep a cache.
        num_heads: of the queries.
        num_kv_heads: of the keys and values in the cache; divides num_heads.
        head_dim: width of one head.
        max_positions: the most tokens that a row can hold.
        pad_token_id: fills up shorter rows; any id will do.
        start_token_id: the decoder's first input: of an encoder-decoder always, of a decoder where a prompt is empty.
        eos_token_ids: each of these ends a text.
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def pad_token_id(self) -> int: ...
    @property
    def start_token_id(self) -> int: ...
    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...


class EncoderDecoderConfig(DecoderConfig, Protocol):
    """As `DecoderConfig`, and what the source may be.

    Attributes:
        source_vocab_size: ids that the encoder knows.
        max_source_positions: the most tokens of a source.
    """

    @property
    def source_vocab_size(self) -> int: ...
    @property
    def max_source_positions(self) -> int: ...


class Decoder(Protocol):
    """A language model."""

    @property
    def config(self) -> DecoderConfig: ...

    def step(
        self, input_ids: Tensor, cache_lengths: Tensor, logits_at: Tensor, past_key_values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Any number of new tokens per row, after any number that its cache already holds.

        Args:
            input_ids: int64 (batch, q_len).
            cache_lengths: int64 (batch,), tokens already in each row's cache.
            logits_at: int64 (batch, n), positions in q_len whose logits are wanted.
            past_key_values: key and value for each layer in turn, each (batch, num_kv_heads, capacity, head_dim).

        Returns:
            logits (batch, n, vocab_size), and the caches with the new tokens written.
        """

    def __call__(self, input_ids: Tensor) -> Tensor:
        """Logits (batch, len, vocab_size) of int64 (batch, len), without a cache."""


class EncoderDecoder(Protocol):
    """A model that reads a source, then writes."""

    @property
    def config(self) -> EncoderDecoderConfig: ...

    def encode(self, input_ids: Tensor, source_lengths: Tensor) -> list[Tensor]:
        """Read the source once.

        Args:
            input_ids: int64 (batch, source_len).
            source_lengths: int64 (batch,), at least 1 each.

        Returns:
            key and value of cross-attention for each decoder layer in turn, each
            (batch, num_heads, source_len, head_dim).
        """

    def step(
        self,
        input_ids: Tensor,
        cache_lengths: Tensor,
        logits_at: Tensor,
        source_lengths: Tensor,
        past_key_values: Sequence[Tensor],
        encoder_key_values: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """As `Decoder.step`, after what `encode` returned."""

    def __call__(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Logits (batch, target_len, vocab_size) of int64 targets (batch, target_len), start token first."""


Head = Literal["hidden-states", "embedding", "sequence-classes", "token-classes", "masked-tokens"]
Scoring = Literal["softmax", "sigmoid", "none"]


class EncoderConfig(Protocol):
    """The numbers and the head of an encoder.

    Attributes:
        vocab_size: ids that it knows.
        max_positions: the most tokens of an input.
        d_model: width of the hidden states.
        num_layers, num_heads, head_dim: of its attentions.
        pad_token_id: fills up shorter rows; any id will do.
        has_token_types: whether `encode` takes token_type_ids.
        head: what the last output is.
        labels: names of the classes, in the order of the logits; none where the head has no classes.
        scoring: what turns the logits of classes into scores: softmax where one is true, sigmoid where several may be.
    """

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def pad_token_id(self) -> int: ...
    @property
    def has_token_types(self) -> bool: ...
    @property
    def head(self) -> Head: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def scoring(self) -> Scoring: ...


class Encoder(Protocol):
    """A model that reads, and does not write."""

    @property
    def config(self) -> EncoderConfig: ...

    def encode(
        self,
        input_ids: Tensor,
        source_lengths: Tensor,
        token_type_ids: Tensor | None = None,
        logits_at: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Read a text. Arguments are given by these names, and those alone that the config asks for.

        Args:
            input_ids: int64 (batch, source_len).
            source_lengths: int64 (batch,), at least 1 each.
            token_type_ids: int64 (batch, source_len), where the config has token types; all 0 where it is None.
            logits_at: int64 (batch, n), positions whose logits are wanted, where the head is `masked-tokens`.

        Returns:
            `last_hidden_state` (batch, source_len, d_model), and by the head:
            `sentence_embedding` (batch, width); for sequence-classes `logits` (batch, labels); for token-classes
            `logits` (batch, source_len, labels); for masked-tokens `logits` (batch, n, vocab_size).
        """


def kind_of(module: object) -> Kind:
    """What a module is, told by its methods.

    Raises:
        TypeError: it has neither `step` nor `encode`.
    """
    can_step, can_encode = (callable(getattr(module, name, None)) for name in ("step", "encode"))
    if can_step:
        return "encoder-decoder" if can_encode else "decoder"
    if can_encode:
        return "encoder"
    raise TypeError(f"{type(module).__name__} has neither step nor encode: see edgeformer.models.protocols")
