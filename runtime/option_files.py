"""What a generation_config.json says: options, notes that change nothing, and what has no equal here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from edgeformer.runtime.errors import OptionError

# Keys that change no token: ids that the bundle holds, notes, how Python returns results, and how caches, compilers
# and drafts of Hugging Face's own are set up.
NOTES = frozenset(
    """
    bos_token_id pad_token_id decoder_start_token_id transformers_version _from_model_config _commit_hash
    use_cache cache_implementation cache_config max_cache_len low_memory prefill_chunk_size compile_config
    disable_compile trust_remote_code
    return_dict_in_generate output_scores output_logits output_attentions output_hidden_states
    is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold
    assistant_lookbehind target_lookbehind max_matching_ngram_size
    """.split()
)
# Keys that are not supported, and the values with which they change nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "guidance_scale": (1.0,),
    "penalty_alpha": (0.0,),
    "remove_invalid_values": (False,),
    "token_healing": (False,),
}
# Of two keys that a file may both hold, the second is not read where the first is there.
BEFORE = (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length"))


def values_of_file(values: Mapping[str, Any], known: Collection[str], sampling: Collection[str]) -> dict[str, Any]:
    """Those keys of a file that are options.

    Args:
        values: the file's content.
        known: names of options.
        sampling: those that are read where `do_sample` is true.

    Raises:
        OptionError: with every key that is not supported.
    """
    given = {name: value for name, value in values.items() if value is not None and name not in NOTES}
    given = {name: value for name, value in given.items() if value not in NEUTRAL.get(name, ())}
    if unknown := [f"{name}={value!r}" for name, value in given.items() if name not in known]:
        raise OptionError(f"not supported: {', '.join(unknown)}; supported: {', '.join(sorted(known))}")
    idle = {second for first, second in BEFORE if first in given}
    if given.get("do_sample", False) is False:
        idle |= set(sampling)
    return {name: value for name, value in given.items() if name not in idle}
