"""Values that no model has: each is refused at once, by its key's name, before anything is made of it."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeformer.models.checkpoint import read_config
from edgeformer.models.configs.keys import HARMLESS, LIMITS, MOST, Keys
from edgeformer.models.families import FAMILIES, config_class
from edgeformer.runtime.errors import CheckpointError, ConfigError

BART: dict[str, Any] = {
    "vocab_size": 40, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 32,
    "pad_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
T5: dict[str, Any] = {"vocab_size": 40, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4}
BERT: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 32, "architectures": ["BertForSequenceClassification"],
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": [2, 3],
}  # fmt: skip
BASES: dict[str, dict[str, Any]] = {
    "bart": BART, "marian": BART, "mbart": BART, "t5": T5, "mt5": T5,
    "bert": BERT, "camembert": BERT, "roberta": BERT, "xlm-roberta": BERT,
    "distilbert": {
        "vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "max_position_embeddings": 32,
    },
    "gpt2": {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32},
    "llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA,
    "transformer": {"vocab_size": 40, "d_model": 16, "num_heads": 4},
}  # fmt: skip
NAN, INFINITY, HUGE = float("nan"), float("inf"), 10**400
EXTREMES: tuple[Any, ...] = (
    0, -1, 10**9, 10**12, HUGE, -HUGE, 1.5, 0.0, -1.0, 1e300, 5e-324, NAN, INFINITY, -INFINITY, True, False, "", "8",
    "x" * 10_000, [], [0], [NAN], [HUGE], ["8"] * 1000, {}, {"a": HUGE}, [[]],
)  # fmt: skip
NO_SIZES: tuple[Any, ...] = (0, -1, 10**12, HUGE, -HUGE, 1.5, 8.0, NAN, INFINITY, True, "8", [8], {"8": 8})
ROPES: tuple[dict[str, Any], ...] = (
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 16},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0,
     "attention_factor": 1.0, "truncate": True},
    {"rope_type": "longrope", "factor": 2.0, "original_max_position_embeddings": 16, "short_factor": [1.0, 2.0],
     "long_factor": [1.0, 2.0], "attention_factor": 1.0},
)  # fmt: skip


def read(model_type: str, values: dict[str, Any]) -> Keys:
    """Reads a configuration; gives what was asked of it."""
    keys = Keys({"model_type": model_type, **values})
    config_class(FAMILIES[model_type]).from_keys(keys)
    return keys


def asked(model_type: str) -> list[str]:
    """Every key that a family looks at."""
    names = read(model_type, BASES[model_type]).read | set(BASES[model_type])
    if model_type == "transformer":
        names |= {"num_encoder_layers", "num_decoder_layers", "d_ff", "max_positions", "dropout", "norm_eps"}
    return sorted(names - {"model_type"})


def refusal(model_type: str, values: dict[str, Any]) -> ConfigError | None:
    """How a configuration is refused, if it is. Nothing else than that may happen, and nothing large be made."""
    tracemalloc.start()
    try:
        read(model_type, values)
    except ConfigError as error:
        return error
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100e6, f"{peak / 1e6:.0f} MB"
    return None


def test_every_family_is_here() -> None:
    assert set(BASES) == set(FAMILIES)
    for model_type, values in BASES.items():
        assert refusal(model_type, values) is None


@pytest.mark.parametrize("model_type", BASES)
def test_any_value_of_any_key_is_taken_or_refused_by_its_name(model_type: str) -> None:
    refused = 0
    for name, value in itertools.product(asked(model_type), EXTREMES):
        error = refusal(model_type, {**BASES[model_type], name: value})
        if error is not None:
            refused += 1
            names = (name, "'a'")  # or by the name in a table of rotary positions
            assert any(said in problem for problem in error.problems for said in names), (name, value, error)
            assert len(str(error)) < 10_000
    assert refused > 100


@pytest.mark.parametrize("model_type", BASES)
def test_sizes_are_whole_numbers_within_limits(model_type: str) -> None:
    # Read by some rotary positions alone, of at least 0, and said again by other names.
    idle = {"original_max_position_embeddings", "extra_pos_embeddings"}
    if "encoder_layers" in BASES[model_type] or "d_kv" in BASES[model_type]:
        idle |= {"num_hidden_layers", "n_positions"}
    sizes = [name for name in asked(model_type) if name in LIMITS and name not in idle]
    assert len(sizes) >= 5
    for name, value in itertools.product(sizes, (*NO_SIZES, LIMITS["vocab_size"] * 1000)):
        error = refusal(model_type, {**BASES[model_type], name: value})
        assert error is not None, (name, value)
        assert any(problem.startswith(f"{name} is ") for problem in error.problems), (name, value, error)


@pytest.mark.parametrize("model_type", ["llama", "qwen3"])
@pytest.mark.parametrize("rope", ROPES, ids=lambda rope: rope["rope_type"])
def test_any_value_of_rotary_positions_is_taken_or_refused_by_its_name(model_type: str, rope: dict[str, Any]) -> None:
    base = {**BASES[model_type], "head_dim": 4}
    assert refusal(model_type, {**base, "rope_scaling": rope}) is None
    for name, value in itertools.product([*rope, "rope_theta"], EXTREMES):
        error = refusal(model_type, {**base, "rope_scaling": {**rope, name: value}})
        if error is not None:
            assert any(name in problem for problem in error.problems), (name, value, error)


def test_the_keys_that_change_nothing_may_hold_anything() -> None:
    free = HARMLESS - {"id2label", "num_labels", "problem_type", "architectures"}  # which an encoder reads
    for name, value in itertools.product(sorted(free), EXTREMES):
        assert refusal("llama", {**LLAMA, name: value}) is None, (name, value)


def contents() -> Iterator[str]:
    """Of a config.json that is no configuration."""
    yield from (
        "",
        "{",
        "[]",
        "null",
        "3",
        '"llama"',
        "[" * 100_000,
        '{"vocab_size": ' + "1" * 5000 + "}",
        "\x00",
        "NaN",
    )
    yield from (json.dumps({"model_type": value}) for value in EXTREMES if value not in (HUGE, -HUGE))


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    for content in contents():
        (tmp_path / "config.json").write_text(content)
        with pytest.raises((CheckpointError, ConfigError)):
            read_config(tmp_path)


def test_a_generation_config_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **LLAMA}))
    for content in ("", "{", "[]", "null", "3", '"llama"', "[" * 100_000, "\x00", '{"top_k": ' + "1" * 5000 + "}"):
        (tmp_path / "generation_config.json").write_text(content)
        with pytest.raises(ConfigError, match=r"generation_config\.json"):
            read_config(tmp_path)


def test_tokens_of_generation_are_checked_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **LLAMA}))
    names = ("eos_token_id", "bos_token_id", "pad_token_id")
    for name, value in itertools.product(names, (-2, 40, 10**9, 1.5, True, "2", [40], [[2]], {"2": 2}, NAN)):
        (tmp_path / "generation_config.json").write_text(json.dumps({name: value}))
        with pytest.raises(ConfigError, match=f"{name} is "):
            read_config(tmp_path)


def test_limits_are_far_beyond_any_model() -> None:
    assert max(LIMITS.values()) <= MOST
    for name, known in {"num_hidden_layers": 126, "hidden_size": 53_248, "vocab_size": 1_000_000}.items():
        assert LIMITS[name] > 10 * known
