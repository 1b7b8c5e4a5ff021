"""Reading a config.json: each key once, with what it must be; what nobody read is refused at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from edgeformer.runtime.errors import ConfigError

T = TypeVar("T")

# Keys of Hugging Face's configurations that change nothing of what a trained model computes: where it came from, how it
# was trained, how Python code returns its results, and how to generate, which generation_config.json says as well.
HARMLESS = frozenset(
    """
    _name_or_path _commit_hash architectures auto_map author transformers_version torch_dtype dtype _attn_implementation
    _attn_implementation_autoset attn_implementation
    use_cache output_attentions output_hidden_states output_past return_dict torchscript return_dict_in_generate
    output_scores use_return_dict tokenizer_class finetuning_task task_specific_params prefix problem_type
    gradient_checkpointing gradient_checkpointing_kwargs initializer_range initializer_factor init_std
    attention_dropout dropout activation_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop residual_dropout
    classifier_dropout classif_dropout classifier_dropout_prob attention_probs_dropout_prob hidden_dropout_prob
    dropout_rate qa_dropout seq_classif_dropout summary_first_dropout encoder_layerdrop decoder_layerdrop layerdrop
    pretraining_tp use_bfloat16 tf_legacy_loss xla_device
    id2label label2id num_labels
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty
    suppress_tokens begin_suppress_tokens
    """.split()
)
REQUIRED: Any = object()

# The most that a size may be: many times what any model has, and too little for a mistake to take all memory.
MOST, MOST_LAYERS, MOST_WIDTH = (1 << 31) - 1, 4096, 1 << 20
MOST_VOCABULARY, MOST_POSITIONS, MOST_DISTANCE = 1 << 24, 1 << 27, 1 << 20
MOST_TABLE = 1 << 30  # numbers in a table that is computed, and not in the checkpoint
LIMITS: dict[str, int] = {
    name: most
    for most, names in (
        (
            MOST_LAYERS,
            "num_hidden_layers n_layer n_layers num_layers num_decoder_layers num_encoder_layers encoder_layers "
            "decoder_layers",
        ),
        (
            MOST_WIDTH,
            "hidden_size n_embd d_model dim intermediate_size n_inner d_ff hidden_dim encoder_ffn_dim decoder_ffn_dim "
            "head_dim d_kv num_attention_heads num_key_value_heads n_head n_heads num_heads num_kv_heads "
            "encoder_attention_heads decoder_attention_heads num_labels type_vocab_size extra_pos_embeddings",
        ),
        (MOST_VOCABULARY, "vocab_size decoder_vocab_size"),
        (MOST_POSITIONS, "max_position_embeddings n_positions max_positions original_max_position_embeddings"),
        (MOST_DISTANCE, "relative_attention_num_buckets relative_attention_max_distance"),
    )
    for name in names.split()
}
LEAST_NUMBER, MOST_NUMBER = 1e-30, 1e30  # float32 holds them, and what is computed of a few of them


def is_whole(value: object) -> bool:
    """JSON's true is no 1."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    return is_whole(value) or isinstance(value, float)


def is_positive(value: Any) -> bool:
    """Whether it is a number above 0 that is neither too small nor too large to compute with."""
    return is_number(value) and LEAST_NUMBER <= value <= MOST_NUMBER


def shown(value: object) -> str:
    """A value as a message has it: not all of a long one."""
    if is_whole(value) and abs(cast("int", value)) > 10**40:  # Python refuses to write the largest
        return "a whole number of more than 40 digits"
    return f"{value!r:.200}"


def wrong_size(name: str, value: Any, least: int = 1) -> str | None:
    """What is wrong with a size: it is a whole number of at least `least`, and not beyond what `LIMITS` has for it."""
    if not is_whole(value) or value < least:
        return f"{name} is {shown(value)}, expected a whole number of at least {least}"
    most = LIMITS.get(name, MOST)
    return None if value <= most else f"{name} is {shown(value)}, expected at most {most}"


class Keys:
    """The keys of a checkpoint's config.json, in Hugging Face's names.

    Every read gives a value that can be used, whatever the file holds: what is wrong is collected, and `finish` raises
    all of it at once.

    Args:
        values: what the file holds.
        subject: what an error calls it.
        folder: the checkpoint, for families that read more of its files; None where there is none.
    """

    def __init__(self, values: Mapping[str, Any], subject: str = "config.json", folder: Path | None = None) -> None:
        self.values, self.subject, self.folder = values, subject, folder
        self.read, self.problems = {"model_type"}, list[str]()

    def raw(self, name: str, default: Any = None) -> Any:
        """The value as it is; the default where the key is missing or null."""
        self.read.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def prefer(self, names: Sequence[str], name: str) -> None:
        """Take these keys from another file of the checkpoint, where it is there and has them.

        Args:
            names: of the keys.
            name: of the file, which holds a JSON object.
        """
        path = self.folder / name if self.folder else None
        if path is None or not path.is_file():
            return
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            self.problem(f"{name} is not JSON: {error}")
            return
        if not isinstance(values, dict):
            self.problem(f"{name} holds no object")
            return
        self.values = {**self.values, **{key: values[key] for key in names if values.get(key) is not None}}

    def problem(self, text: str) -> None:
        self.problems.append(text)

    def whole(self, name: str, default: int = REQUIRED, least: int = 1) -> int:
        """A whole number of at least `least`, and not beyond what `LIMITS` has for its name."""
        value = self.raw(name, default)
        if value is REQUIRED:
            self.problem(f"key {name!r} is missing")
        elif (problem := wrong_size(name, value, least)) is not None:
            self.problem(problem)
        else:
            return int(value)
        return max(least, 1)

    def number(self, name: str, default: float = REQUIRED) -> float:
        """A number above 0, from 1e-30 to 1e30."""
        value = self.raw(name, default)
        if value is REQUIRED:
            self.problem(f"key {name!r} is missing")
        elif not is_positive(value):
            within = f", from {LEAST_NUMBER} to {MOST_NUMBER}" if is_number(value) and value > 0 else ""
            self.problem(f"{name} is {shown(value)}, expected a number above 0{within}")
        else:
            return float(value)
        return 1.0

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name, default)
        if not isinstance(value, bool):
            self.problem(f"{name} is {shown(value)}, expected true or false")
            return default
        return value

    def choice(self, name: str, choices: Mapping[str, T], default: str = REQUIRED) -> T:
        """What one of these words stands for."""
        value = self.raw(name, default)
        if value is REQUIRED:
            self.problem(f"key {name!r} is missing")
        elif not isinstance(value, str) or value not in choices:
            self.problem(f"{name} is {shown(value)}, expected one of {', '.join(choices)}")
        else:
            return choices[value]
        return next(iter(choices.values()))

    def token(self, name: str, vocab_size: int, default: int | None) -> int | None:
        """A token's id, or None where the key is missing and has no default."""
        value = self.raw(name, default)
        if value is not None and (not is_whole(value) or not 0 <= value < vocab_size):
            self.problem(f"{name} is {shown(value)}, outside the vocabulary of {vocab_size}")
            return default
        return None if value is None else int(value)

    def tokens(self, name: str, vocab_size: int) -> tuple[int, ...]:
        """One token's id or a list of them; empty where the key is missing."""
        value = self.raw(name, [])
        ids = value if isinstance(value, list) else [value]
        if wrong := [i for i in ids if not is_whole(i) or not 0 <= i < vocab_size]:
            self.problem(f"{name} is {shown(wrong)}, outside the vocabulary of {vocab_size}")
            return ()
        return tuple(ids)

    def expect(self, name: str, *allowed: object) -> None:
        """Refuse a key whose value, where it is given, is none of those that are computed here."""
        value = self.raw(name)
        if value is not None and not any(type(value) is type(a) and value == a for a in allowed):
            known = " or ".join(map(repr, allowed))
            self.problem(f"{name} is {shown(value)}, which is not supported: only {known} is")

    def ignore(self, *names: str) -> None:
        """Keys of this family that change nothing."""
        self.read.update(names)

    def finish(self, more: Sequence[str] = ()) -> None:
        """Raise what is wrong, unread keys among it.

        Raises:
            ConfigError: with every problem.
        """
        unread = [name for name in self.values if name not in self.read | HARMLESS]
        problems = [*self.problems, *more, *(f"key {name!r} is not understood" for name in unread)]
        if problems:
            raise ConfigError(self.subject, problems)
