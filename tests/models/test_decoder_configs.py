"""A decoder's config.json is understood whole or refused, with everything that is wrong in one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgeformer.models.checkpoint import load_checkpoint, read_config
from edgeformer.models.configs.keys import Keys
from edgeformer.models.families import FAMILIES, config_class
from edgeformer.runtime.errors import CheckpointError, ConfigError

from .decoder_families import GPT2_SIZES, SIZES, make, random_rows, save

TYPES = ("llama", "mistral", "qwen2", "qwen3")


def read(model_type: str, **values: Any) -> Any:
    sizes = GPT2_SIZES if model_type == "gpt2" else SIZES
    return config_class(FAMILIES[model_type]).from_keys(Keys({"model_type": model_type, **sizes, **values}))


def problems(model_type: str, **values: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(model_type, **values)
    return caught.value.problems


@pytest.mark.parametrize("model_type", [*TYPES, "gpt2"])
def test_a_key_that_is_not_known_is_refused(model_type: str) -> None:
    assert problems(model_type, logit_scale=2.0) == ("key 'logit_scale' is not understood",)


@pytest.mark.parametrize("model_type", [*TYPES, "gpt2"])
def test_a_decoder_that_is_more_than_one_is_refused(model_type: str) -> None:
    found = problems(model_type, is_encoder_decoder=True, add_cross_attention=True, quantization_config={"bits": 4})
    assert found == (
        "is_encoder_decoder is True, which is not supported: only False is",
        "add_cross_attention is True, which is not supported: only False is",
        "key 'quantization_config' is not understood",
    )


def test_all_problems_of_llama_come_at_once() -> None:
    found = problems(
        "llama", hidden_size=21, num_attention_heads=6, num_key_value_heads=4, head_dim=None, hidden_act="swiglu",
        rms_norm_eps=0, tie_word_embeddings="no", eos_token_id=[2, 37], rope_scaling={"type": "ntk"},
    )  # fmt: skip
    assert len(found) == 8
    for part in (
        "hidden_size 21 is not a multiple of num_attention_heads 6",
        "num_attention_heads 6 is not a multiple of num_key_value_heads 4",
        "hidden_act is 'swiglu'",
        "rms_norm_eps is 0",
        "tie_word_embeddings is 'no'",
        "eos_token_id is [37]",
        "rope_type is 'ntk', expected one of default, linear, dynamic, yarn, longrope, llama3",
        "head_dim is 3, expected an even number",
    ):
        assert any(part in problem for problem in found), part


def test_all_problems_of_gpt2_come_at_once() -> None:
    found = problems("gpt2", n_embd=21, n_positions=0, n_ctx=7, activation_function="swiglu", n_inner=-1)
    assert len(found) == 5


def test_missing_sizes_are_all_named() -> None:
    with pytest.raises(ConfigError) as caught:
        config_class(FAMILIES["llama"]).from_keys(Keys({"model_type": "llama"}))
    assert sum("is missing" in problem for problem in caught.value.problems) == 6


# Tokens


def test_tokens_that_a_file_leaves_open_get_ids_that_exist() -> None:
    config = read("llama", eos_token_id=[5, 7])
    assert (config.pad_token_id, config.start_token_id, config.eos_token_ids) == (5, 5, (5, 7))
    config = read("llama")
    assert (config.pad_token_id, config.start_token_id, config.eos_token_ids) == (0, 0, ())


def test_the_padding_of_the_first_llamas_is_none() -> None:
    assert read("llama", pad_token_id=-1, eos_token_id=2).pad_token_id == 2


# Windows


def test_mistral_has_the_window_of_transformers_unless_it_has_none() -> None:
    long = {"max_position_embeddings": 8192}
    assert read("mistral", **long).windows == (4096,) * 3
    assert read("mistral", **long, sliding_window=100).windows == (100,) * 3
    assert read("mistral", **long, sliding_window=None).windows == (None,) * 3


def test_a_window_that_no_text_outgrows_is_none() -> None:
    assert read("mistral", sliding_window=64).windows == (None,) * 3
    assert read("mistral", sliding_window=63).windows == (63,) * 3


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_a_window_that_is_not_used_is_none(model_type: str) -> None:
    assert read(model_type, sliding_window=8, max_window_layers=1).windows == (None,) * 3
    used = {"sliding_window": 8, "max_window_layers": 1, "use_sliding_window": True}
    assert read(model_type, **used).windows == (None, 8, 8)


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention"] * 2},
        {"layer_types": ["full_attention", "full_attention", "linear_attention"]},
        {"layer_types": "full_attention"},
        {"layer_types": ["full_attention", "full_attention", "sliding_attention"], "sliding_window": 8},
        {"use_sliding_window": True, "sliding_window": -4},
    ],
)
def test_windows_that_contradict_each_other_are_refused(changes: dict[str, Any]) -> None:
    assert len(problems("qwen2", **changes)) == 1


# Positions


@pytest.mark.parametrize(("scaling", "longest"), [("dynamic", 64), ("linear", 64), ("longrope", 16)])
def test_positions_end_where_the_rotation_would_change(scaling: str, longest: int) -> None:
    more: dict[str, Any] = {"factor": 2.0}
    if scaling == "longrope":
        more |= {"original_max_position_embeddings": 16, "short_factor": [1.0] * 3, "long_factor": [2.0] * 3}
    assert read("llama", rope_scaling={"type": scaling, **more}).max_positions == longest


def test_qwen3_has_heads_of_128_where_it_names_none() -> None:
    assert read("qwen3", head_dim=None).head_dim == 128
    assert read("qwen2", head_dim=None, hidden_size=24).head_dim == 6


# Checkpoints


@pytest.mark.parametrize("variation", ["gpt2", "llama", "qwen3"])
def test_a_checkpoint_without_the_head_is_read_too(tmp_path: Path, variation: str) -> None:
    """As `AutoModel` saves it; the projection is the embedding's matrix."""
    reference = make(variation, tie_word_embeddings=True)
    reference.base_model.save_pretrained(tmp_path)
    (row,) = random_rows([6])
    torch.testing.assert_close(load_checkpoint(tmp_path)(row[None]), reference(row[None]).logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("variation", "extra"),
    [
        ("gpt2", {"h.0.attn.bias": (1, 1, 64, 64), "h.0.attn.masked_bias": (), "lm_head.weight": (37, 20)}),
        ("llama tied", {"model.layers.0.self_attn.rotary_emb.inv_freq": (3,), "lm_head.weight": (37, 20)}),
    ],
)
def test_tensors_that_carry_nothing_are_left_out(
    tmp_path: Path, variation: str, extra: dict[str, tuple[int, ...]]
) -> None:
    reference = save(variation, tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), **{name: torch.ones(shape) for name, shape in extra.items()}}, file)
    (row,) = random_rows([6])
    torch.testing.assert_close(load_checkpoint(tmp_path)(row[None]), reference(row[None]).logits, rtol=0, atol=2e-5)


def test_a_projection_that_is_missing_is_named(tmp_path: Path) -> None:
    save("llama tied", tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "tie_word_embeddings": False}))
    with pytest.raises(CheckpointError, match=r"tensor lm_head\.weight is missing"):
        load_checkpoint(tmp_path)


def test_biases_that_a_configuration_does_not_name_are_not_dropped(tmp_path: Path) -> None:
    save("llama biases", tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**values, "attention_bias": False}))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert sum("_proj.bias is unknown to this model" in problem for problem in caught.value.problems) == 12


@pytest.mark.parametrize("variation", ["gpt2", "mistral", "qwen2", "qwen3"])
def test_what_transformers_saves_is_what_was_configured(tmp_path: Path, variation: str) -> None:
    reference = save(variation, tmp_path)
    config = read_config(tmp_path)
    ours = (config.vocab_size, config.num_layers, config.num_heads, config.max_positions, config.eos_token_ids)
    theirs = reference.config
    assert ours == (
        theirs.vocab_size, theirs.num_hidden_layers, theirs.num_attention_heads, theirs.max_position_embeddings, (2,),
    )  # fmt: skip
