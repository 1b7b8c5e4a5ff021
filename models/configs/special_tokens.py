"""The tokens with a meaning, as a language model's config.json names them."""

from __future__ import annotations

from typing import Any

from edgeformer.models.configs.keys import Keys

ABSENT = -1  # what LLaMA's first configurations give as the padding


def decoder_tokens(keys: Keys, vocab_size: int) -> dict[str, Any]:
    """A decoder's `pad_token_id`, `start_token_id` and `eos_token_ids`; what a file leaves open gets an id that exists.

    Keys that make it more than a decoder are refused.
    """
    keys.expect("is_encoder_decoder", False)
    keys.expect("add_cross_attention", False)
    keys.ignore("is_decoder", "sep_token_id", "chunk_size_feed_forward")
    ends = keys.tokens("eos_token_id", vocab_size)
    first_end = ends[0] if ends else 0
    start = keys.token("bos_token_id", vocab_size, first_end)
    pad = first_end if keys.raw("pad_token_id") == ABSENT else keys.token("pad_token_id", vocab_size, first_end)
    return {"pad_token_id": pad, "start_token_id": start, "eos_token_ids": ends}
