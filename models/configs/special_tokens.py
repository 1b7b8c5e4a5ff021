"""The tokens with a meaning, as a language model's generation_config.json and config.json name them."""

from __future__ import annotations

from typing import Any

from edgeformer.models.configs.keys import Keys

# What Hugging Face's library generates with; config.json counts where this file or a key of it is missing.
GENERATION = "generation_config.json"
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
ABSENT = -1  # what LLaMA's first configurations give as the padding


def decoder_tokens(keys: Keys, vocab_size: int) -> dict[str, Any]:
    """A decoder's `pad_token_id`, `start_token_id` and `eos_token_ids`; what files leave open gets an id that exists.

    Keys that make it more than a decoder are refused.
    """
    keys.expect("is_encoder_decoder", False)
    keys.expect("add_cross_attention", False)
    keys.ignore("is_decoder", "sep_token_id", "chunk_size_feed_forward", "decoder_start_token_id")
    keys.prefer(TOKENS, GENERATION)
    ends = keys.tokens("eos_token_id", vocab_size)
    first_end = ends[0] if ends else 0
    start = keys.token("bos_token_id", vocab_size, first_end)
    pad = first_end if keys.raw("pad_token_id") == ABSENT else keys.token("pad_token_id", vocab_size, first_end)
    return {"pad_token_id": pad, "start_token_id": start, "eos_token_ids": ends}
