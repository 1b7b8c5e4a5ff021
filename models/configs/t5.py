"""T5 (Raffel et al. 2019), its version 1.1, flan-T5 and mT5 (Xue et al. 2020)."""

from __future__ import annotations

import dataclasses

from edgeformer.models.configs.activations import ACTIVATIONS, Activation
from edgeformer.models.configs.encoder_decoders import encoder_decoder_tokens, refuse_other_models
from edgeformer.models.configs.keys import Keys, shown

# Positions are relative, and those far apart are all the same: neither side has a last one. This number only says up to
# where a length makes sense; memory is set aside by what is asked for, never by it.
MAX_POSITIONS = 32768


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class T5Config:
    """Every number that decides what T5 computes.

    Attributes:
        num_encoder_layers, num_layers: of the encoder and of the decoder.
        gated: whether the feed-forward blocks are.
        num_buckets: kinds of distance that the position bias knows.
        max_distance: from here on, all distances are one kind.
        tied: whether the vocabulary projection may be the embedding matrix; the checkpoint decides, by having one.
        scale_output: whether hidden states are divided by sqrt(d_model) before that projection.
    """

    vocab_size: int
    d_model: int
    num_encoder_layers: int
    num_layers: int
    num_heads: int
    head_dim: int
    d_ff: int
    activation: Activation
    gated: bool
    num_buckets: int
    max_distance: int
    norm_eps: float
    tied: bool
    scale_output: bool
    pad_token_id: int
    start_token_id: int
    eos_token_ids: tuple[int, ...]

    @property
    def num_kv_heads(self) -> int:
        """Every head has keys and values of its own."""
        return self.num_heads

    @property
    def source_vocab_size(self) -> int:
        """Both sides share one vocabulary."""
        return self.vocab_size

    @property
    def max_positions(self) -> int:
        return MAX_POSITIONS

    @property
    def max_source_positions(self) -> int:
        return MAX_POSITIONS

    @classmethod
    def from_keys(cls, keys: Keys) -> T5Config:
        """T5's configuration.

        Raises:
            ConfigError: with every key that is missing, out of range, or not understood.
        """
        # Up to version 4 of Hugging Face's library one key said both: tied matrices are scaled, others are not.
        tied = keys.flag("tie_word_embeddings", True)
        return read(keys, "relu", tied, scale_output=keys.flag("scale_decoder_outputs", tied))


class MT5Config(T5Config):
    """As T5's, with gated feed-forward blocks, and never scaled before the projection."""

    __slots__ = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> T5Config:
        """mT5's configuration.

        Raises:
            ConfigError: as T5's.
        """
        keys.expect("scale_decoder_outputs", False)
        return read(keys, "gated-gelu", keys.flag("tie_word_embeddings", True), scale_output=False)


def read(keys: Keys, feed_forward: str, tied: bool, scale_output: bool) -> T5Config:
    refuse_other_models(keys)
    keys.ignore("n_positions")  # of the training data
    vocab_size, num_layers = keys.whole("vocab_size"), keys.whole("num_layers")
    activation, gated = read_feed_forward(keys, feed_forward)
    config = T5Config(
        vocab_size=vocab_size,
        d_model=keys.whole("d_model"),
        num_encoder_layers=num_layers,
        num_layers=keys.whole("num_decoder_layers", num_layers),
        num_heads=keys.whole("num_heads"),
        head_dim=keys.whole("d_kv"),
        d_ff=keys.whole("d_ff"),
        activation=activation,
        gated=gated,
        num_buckets=keys.whole("relative_attention_num_buckets", 32, least=4),
        max_distance=keys.whole("relative_attention_max_distance", 128),
        norm_eps=keys.number("layer_norm_epsilon", 1e-6),
        tied=tied,
        scale_output=scale_output,
        **encoder_decoder_tokens(keys, vocab_size, vocab_size, eos_token_id=1, pad_token_id=0, begins_with="pad"),
    )
    keys.finish(wrong_buckets(config))
    return config


def read_feed_forward(keys: Keys, by_default: str) -> tuple[Activation, bool]:
    """The activation, and whether it is a gate's: `relu`, `gated-silu`, ..."""
    words = {**ACTIVATIONS, **{f"gated-{name}": activation for name, activation in ACTIVATIONS.items()}}
    words["gated-gelu"] = ACTIVATIONS["gelu_new"]  # what version 1.1 was trained with, under this name
    activation = keys.choice("feed_forward_proj", words, by_default)
    gated = str(keys.raw("feed_forward_proj", by_default)).startswith("gated-")
    keys.expect("is_gated_act", gated)
    again = keys.raw("dense_act_fn")
    if again is not None and ACTIVATIONS.get(str(again)) != activation:
        keys.problem(
            f"dense_act_fn is {shown(again)}, feed_forward_proj {shown(keys.raw('feed_forward_proj', by_default))}"
        )
    return activation, gated


def wrong_buckets(config: T5Config) -> list[str]:
    """Half of the buckets are for a distance each; the others divide what is left up to max_distance."""
    alone = config.num_buckets // 2
    if config.max_distance <= alone:
        return [
            f"relative_attention_max_distance is {config.max_distance}, expected more than {alone}, half of "
            "relative_attention_num_buckets"
        ]
    return []
