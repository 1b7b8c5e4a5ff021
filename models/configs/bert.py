"""BERT and the encoders that are built like it: RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, sentence encoders."""

from __future__ import annotations

import dataclasses

from edgeformer.models.configs.activations import ACTIVATIONS, Activation
from edgeformer.models.configs.encoder_heads import Head, HeadConfig, Scoring, read_head
from edgeformer.models.configs.keys import Keys
from edgeformer.models.configs.sentence_encoders import read_longest

# What BERT's older configurations say of its pooler, which is one linear map whatever they say; and what says nothing.
UNUSED = (
    "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
    "chunk_size_feed_forward bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id is_encoder_decoder "
    "_num_labels language name"
).split()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """An encoder of post-norm layers over learned positions (Devlin et al. 2018, "BERT").

    Attributes:
        position_rows: rows of the table of positions.
        first_position: the row of a text's first token.
        max_positions: the most tokens of an input.
        token_types: rows of the table of token types; none in DistilBERT.
        tied: whether the vocabulary projection is the embedding matrix.
        head_activation: in the head that fills masks.
        output: the head.
    """

    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    position_rows: int
    first_position: int = 0
    max_positions: int
    token_types: int = 0
    activation: Activation = "gelu"
    head_activation: Activation = "gelu"
    norm_eps: float = 1e-12
    pad_token_id: int = 0
    tied: bool = True
    output: HeadConfig = dataclasses.field(default_factory=HeadConfig)

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads

    @property
    def has_token_types(self) -> bool:
        """Whether there is more than one type to choose from."""
        return self.token_types > 1

    @property
    def head(self) -> Head:
        return self.output.kind

    @property
    def labels(self) -> tuple[str, ...]:
        return self.output.labels

    @property
    def scoring(self) -> Scoring:
        return self.output.scoring

    @classmethod
    def from_keys(cls, keys: Keys) -> BertConfig:
        """BERT's configuration.

        Raises:
            ConfigError: with every key that is missing, out of range, or not understood.
        """
        return read_bert(keys)


class RobertaConfig(BertConfig):
    """As BERT's (Liu et al. 2019, "RoBERTa"), but positions are counted from the padding token's id on."""

    __slots__ = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> BertConfig:
        """The configuration of RoBERTa, XLM-RoBERTa or CamemBERT.

        Raises:
            ConfigError: as BERT's.
        """
        pad = keys.token("pad_token_id", keys.whole("vocab_size"), default=1)
        return read_bert(keys, first_position=(pad or 0) + 1, pad_by_default=1, head_activation="gelu")


def read_bert(
    keys: Keys, first_position: int = 0, pad_by_default: int = 0, head_activation: Activation | None = None
) -> BertConfig:
    refuse_decoders(keys)
    keys.expect("position_embedding_type", "absolute")
    keys.ignore(*UNUSED)
    vocab_size, rows = keys.whole("vocab_size"), keys.whole("max_position_embeddings", least=first_position + 1)
    activation = keys.choice("hidden_act", ACTIVATIONS, "gelu")
    config = BertConfig(
        vocab_size=vocab_size,
        d_model=keys.whole("hidden_size"),
        num_layers=keys.whole("num_hidden_layers"),
        num_heads=keys.whole("num_attention_heads"),
        d_ff=keys.whole("intermediate_size"),
        position_rows=rows,
        first_position=first_position,
        max_positions=read_longest(keys, max(rows - first_position, 1)),
        token_types=keys.whole("type_vocab_size", 2),
        activation=activation,
        head_activation=head_activation or activation,
        norm_eps=keys.number("layer_norm_eps", 1e-12),
        pad_token_id=keys.token("pad_token_id", vocab_size, pad_by_default) or 0,
        tied=keys.flag("tie_word_embeddings", True),
        output=read_head(keys),
    )
    keys.finish([] if keys.problems else wrong_heads(config))
    return config


class DistilBertConfig(BertConfig):
    """As BERT's, without token types (Sanh et al. 2019, "DistilBERT")."""

    __slots__ = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> BertConfig:
        """DistilBERT's configuration.

        Raises:
            ConfigError: as BERT's.
        """
        refuse_decoders(keys)
        keys.ignore("sinusoidal_pos_embds", *UNUSED)  # which only says what the positions began as
        keys.expect("tie_weights_", True)
        vocab_size, rows = keys.whole("vocab_size"), keys.whole("max_position_embeddings")
        activation = keys.choice("activation", ACTIVATIONS, "gelu")
        config = BertConfig(
            vocab_size=vocab_size,
            d_model=keys.whole("dim"),
            num_layers=keys.whole("n_layers"),
            num_heads=keys.whole("n_heads"),
            d_ff=keys.whole("hidden_dim"),
            position_rows=rows,
            max_positions=read_longest(keys, rows),
            activation=activation,
            head_activation=activation,
            pad_token_id=keys.token("pad_token_id", vocab_size, 0) or 0,
            tied=keys.flag("tie_word_embeddings", True),
            output=read_head(keys),
        )
        keys.finish([] if keys.problems else wrong_heads(config))
        return config


def refuse_decoders(keys: Keys) -> None:
    for name in ("is_decoder", "add_cross_attention", "tie_encoder_decoder"):
        keys.expect(name, False)
    keys.expect("pruned_heads", {})


def wrong_heads(config: BertConfig) -> list[str]:
    if config.d_model % config.num_heads:
        return [f"the width {config.d_model} is not a multiple of the number of heads, {config.num_heads}"]
    return []
