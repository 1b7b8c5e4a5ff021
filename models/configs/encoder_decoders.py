"""What the configurations of encoder-decoders have in common: tokens with a meaning, and what such a model is not."""

from __future__ import annotations

from typing import Any, Literal

from edgeformer.models.configs.keys import Keys, shown
from edgeformer.models.configs.special_tokens import GENERATION, TOKENS

# The ends of Hugging Face's class names of models that write.
WRITERS = ("ForConditionalGeneration", "MTModel", "Model")


def encoder_decoder_tokens(
    keys: Keys,
    vocab_size: int,
    source_vocab_size: int,
    *,
    eos_token_id: int,
    pad_token_id: int,
    begins_with: Literal["pad", "bos", "eos"],
) -> dict[str, Any]:
    """`pad_token_id`, `start_token_id` and `eos_token_ids` of a model that reads a source, then writes.

    Args:
        keys: of config.json; those of generation_config.json come first.
        vocab_size: ids that the decoder knows.
        source_vocab_size: ids that the encoder knows; padding is one of both.
        eos_token_id, pad_token_id: what the family has, for a file that says nothing.
        begins_with: what the family's decoder begins with, for a file without decoder_start_token_id.
    """
    keys.prefer(TOKENS, GENERATION)
    ends = keys.tokens("eos_token_id", vocab_size) or (min(eos_token_id, vocab_size - 1),)
    least = min(vocab_size, source_vocab_size)
    pad = keys.token("pad_token_id", least, min(pad_token_id, least - 1))
    by_default = {"pad": pad, "eos": ends[0], "bos": keys.token("bos_token_id", vocab_size, 0)}[begins_with]
    return {
        "pad_token_id": pad,
        "start_token_id": keys.token("decoder_start_token_id", vocab_size, by_default),
        "eos_token_ids": ends,
    }


def refuse_other_models(keys: Keys) -> None:
    """A checkpoint of the family that reads only, or writes only, or does neither."""
    keys.expect("is_encoder_decoder", True)
    for name in ("is_decoder", "tie_encoder_decoder", "add_cross_attention"):
        keys.expect(name, False)
    keys.expect("pruned_heads", {})
    keys.ignore("chunk_size_feed_forward", "sep_token_id", "_num_labels", "num_hidden_layers")
    names = keys.raw("architectures", [])
    if not isinstance(names, list):
        keys.problem(f"architectures is {shown(names)}, expected a list of names")
        return
    for name in dict.fromkeys(map(str, names)):
        if not name.endswith(WRITERS) or name.endswith("EncoderModel"):
            keys.problem(
                f"architectures names {shown(name)}, which is not supported: only models that read and write are"
            )
