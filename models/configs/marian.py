"""Marian (Junczys-Dowmunt et al. 2018): BART's design, with the paper's positions."""

from __future__ import annotations

from edgeformer.models.configs.bart import BartConfig, Design, read
from edgeformer.models.configs.keys import Keys

MARIAN = Design(
    norm_placement="post", embedding_norm=False, final_norm=False, sinusoidal=True, position_offset=0,
    eos_token_id=0, pad_token_id=58100, begins_with="pad",
)  # fmt: skip


class MarianConfig(BartConfig):
    """As BART's, with sinusoidal positions, no norm of embeddings, and perhaps a vocabulary for each side.

    Positions are learned where `static_position_embeddings` is false: Hugging Face's own key, though its library has
    stopped reading it.
    """

    __slots__ = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> BartConfig:
        """Marian's configuration.

        Raises:
            ConfigError: as BART's.
        """
        source_vocab_size = keys.whole("vocab_size")
        vocab_size = keys.whole("decoder_vocab_size", source_vocab_size)
        shared = keys.flag("share_encoder_decoder_embeddings", True)
        if shared and vocab_size != source_vocab_size:
            keys.problem(
                f"decoder_vocab_size is {vocab_size}, vocab_size {source_vocab_size}, and "
                "share_encoder_decoder_embeddings says that they are one"
            )
        return read(keys, MARIAN, vocab_size, source_vocab_size, shared)
