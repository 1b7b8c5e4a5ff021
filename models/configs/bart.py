"""BART (Lewis et al. 2019) and mBART (Liu et al. 2020); Marian is one design with them."""

from __future__ import annotations

import dataclasses
from typing import Literal

from edgeformer.models.configs.activations import ACTIVATIONS, Activation
from edgeformer.models.configs.encoder_decoders import encoder_decoder_tokens, refuse_other_models
from edgeformer.models.configs.keys import MOST_TABLE, Keys

NormPlacement = Literal["post", "pre"]

# What older configurations say of training and of generation, and whether there is a bias of the logits, which the
# checkpoint itself shows.
UNUSED = "add_bias_logits force_bos_token_to_be_generated save_step".split()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StackConfig:
    """The layers of the encoder, or of the decoder.

    Attributes:
        norm_eps: PyTorch's own, in all checkpoints.
        dropout: none, since these models are not trained here.
    """

    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    activation: Activation
    norm_placement: NormPlacement
    norm_eps: float = 1e-5
    dropout: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What a family has where its configuration says nothing; the fields are those of `BartConfig`."""

    norm_placement: NormPlacement
    embedding_norm: bool
    final_norm: bool
    sinusoidal: bool = False
    position_offset: int = 2
    eos_token_id: int = 2
    pad_token_id: int = 1
    begins_with: Literal["pad", "bos", "eos"]


BART = Design(norm_placement="post", embedding_norm=True, final_norm=False, begins_with="eos")
MBART = Design(norm_placement="pre", embedding_norm=True, final_norm=True, begins_with="bos")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BartConfig:
    """Every number that decides what BART, mBART or Marian computes.

    Attributes:
        vocab_size: of the decoder and the logits.
        source_vocab_size: of the encoder.
        sinusoidal: whether positions are computed, where the checkpoint holds no table of them.
        position_offset: rows of a learned table before the first position's.
        embedding_norm: whether the embeddings are normalized.
        final_norm: whether the encoder's and the decoder's results are normalized.
        scale_embeddings: whether tokens' embeddings are multiplied by sqrt(d_model).
        shared: whether encoder and decoder have one embedding matrix.
        tied: whether the vocabulary projection is the decoder's embedding matrix.
    """

    vocab_size: int
    source_vocab_size: int
    encoder: StackConfig
    decoder: StackConfig
    max_positions: int
    sinusoidal: bool
    position_offset: int
    embedding_norm: bool
    final_norm: bool
    scale_embeddings: bool
    shared: bool
    tied: bool
    pad_token_id: int
    start_token_id: int
    eos_token_ids: tuple[int, ...]

    @property
    def d_model(self) -> int:
        return self.decoder.d_model

    @property
    def num_layers(self) -> int:
        """Layers of the decoder: those that keep a cache."""
        return self.decoder.num_layers

    @property
    def num_heads(self) -> int:
        """Of the decoder, whose attention the caches and the encoder's keys and values are for."""
        return self.decoder.num_heads

    @property
    def num_kv_heads(self) -> int:
        """Every head has keys and values of its own."""
        return self.num_heads

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads

    @property
    def max_source_positions(self) -> int:
        """Both sides have as many."""
        return self.max_positions

    @classmethod
    def from_keys(cls, keys: Keys) -> BartConfig:
        """BART's configuration.

        Raises:
            ConfigError: with every key that is missing, out of range, or not understood.
        """
        vocab_size = keys.whole("vocab_size")
        return read(keys, BART, vocab_size, vocab_size)


class MBartConfig(BartConfig):
    """As BART's, with pre-norm layers and a norm behind the last."""

    __slots__ = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> BartConfig:
        """mBART's configuration.

        Raises:
            ConfigError: as BART's.
        """
        vocab_size = keys.whole("vocab_size")
        return read(keys, MBART, vocab_size, vocab_size)


def read(keys: Keys, design: Design, vocab_size: int, source_vocab_size: int, shared: bool = True) -> BartConfig:
    """A family's configuration, but for its vocabularies."""
    refuse_other_models(keys)
    keys.ignore(*UNUSED)
    keys.expect("do_blenderbot_90_layernorm", False)
    # No tensor of a checkpoint would show that this is not what Hugging Face computes for the family.
    keys.expect("normalize_before", design.norm_placement == "pre")
    common = (keys.whole("d_model"), keys.choice("activation_function", ACTIVATIONS, "gelu"), design.norm_placement)
    tied = keys.flag("tie_word_embeddings", True)
    config = BartConfig(
        vocab_size=vocab_size,
        source_vocab_size=source_vocab_size,
        encoder=read_stack(keys, "encoder", *common),
        decoder=read_stack(keys, "decoder", *common),
        max_positions=keys.whole("max_position_embeddings"),
        sinusoidal=keys.flag("static_position_embeddings", design.sinusoidal),
        position_offset=keys.whole("extra_pos_embeddings", design.position_offset, least=0),
        embedding_norm=keys.flag("normalize_embedding", design.embedding_norm),
        final_norm=keys.flag("add_final_layer_norm", design.final_norm),
        scale_embeddings=keys.flag("scale_embedding", False),
        shared=shared and tied,  # Hugging Face unties all at once
        tied=tied,
        **encoder_decoder_tokens(
            keys,
            vocab_size,
            source_vocab_size,
            eos_token_id=design.eos_token_id,
            pad_token_id=design.pad_token_id,
            begins_with=design.begins_with,
        ),
    )
    keys.finish(wrong_widths(config))
    return config


def read_stack(
    keys: Keys, side: str, d_model: int, activation: Activation, norm_placement: NormPlacement
) -> StackConfig:
    return StackConfig(
        d_model=d_model,
        num_layers=keys.whole(f"{side}_layers"),
        num_heads=keys.whole(f"{side}_attention_heads"),
        d_ff=keys.whole(f"{side}_ffn_dim"),
        activation=activation,
        norm_placement=norm_placement,
    )


def wrong_widths(config: BartConfig) -> list[str]:
    sides = {"encoder": config.encoder, "decoder": config.decoder}
    problems = [
        f"d_model {stack.d_model} is not a multiple of {side}_attention_heads {stack.num_heads}"
        for side, stack in sides.items()
        if stack.d_model % stack.num_heads
    ]
    if config.sinusoidal and config.max_positions * config.d_model > MOST_TABLE:
        problems.append(
            f"max_position_embeddings {config.max_positions} times d_model {config.d_model} are more sinusoids than "
            f"{MOST_TABLE}"
        )
    if config.sinusoidal and config.d_model % 2:
        problems.append(f"d_model {config.d_model} is odd; sinusoidal positions come in pairs of sine and cosine")
    return problems
