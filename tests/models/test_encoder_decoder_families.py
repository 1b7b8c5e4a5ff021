"""Marian, BART, mBART, T5 and mT5 compute what Hugging Face's transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.models.configs.keys import Keys
from edgeformer.models.families import config_class, family_of
from edgeformer.models.weight_files import WEIGHTS
from edgeformer.runtime.errors import CheckpointError, ConfigError

from .encoder_decoder_families import check, close, randomized, reference_logits, saved

# No two sizes are the same, so that none can stand in for another.
BART: dict[str, Any] = {
    "vocab_size": 29, "d_model": 20, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 5,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 28, "max_position_embeddings": 11,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": 29, "d_model": 20, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 5,
    "decoder_start_token_id": 0, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 7,
}  # fmt: skip


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def rewrite(folder: Path, changes: dict[str, Tensor | None]) -> None:
    """Change tensors of a checkpoint; None takes one out."""
    tensors = {**load_file(folder / WEIGHTS), **changes}
    save_file({name: t for name, t in tensors.items() if t is not None}, folder / WEIGHTS, metadata={"format": "pt"})


def read(values: dict[str, Any]) -> Any:
    return config_class(family_of(values, "config.json")).from_keys(Keys(values))


def problems(values: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(values)
    return caught.value.problems


# BART, mBART and Marian


@pytest.mark.parametrize("changes", [
    {}, {"scale_embedding": True}, {"activation_function": "gelu_new"}, {"activation_function": "relu"},
    {"tie_word_embeddings": False},
], ids=str)  # fmt: skip
def test_bart(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = randomized(BartForConditionalGeneration(BartConfig(**BART, **changes)))
    check(reference, saved(reference, tmp_path))


@pytest.mark.parametrize("changes", [{}, {"scale_embedding": True, "activation_function": "relu"}], ids=str)
def test_mbart(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = randomized(MBartForConditionalGeneration(MBartConfig(**BART, **changes)))
    check(reference, saved(reference, tmp_path))


@pytest.mark.parametrize("changes", [
    {}, {"scale_embedding": True, "activation_function": "swish"}, {"tie_word_embeddings": False},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31},
    {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31, "tie_word_embeddings": False},
], ids=str)  # fmt: skip
def test_marian(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = randomized(MarianMTModel(MarianConfig(**BART, **changes)))
    folder = saved(reference, tmp_path)
    assert not any("embed_positions" in name for name in load_file(folder / WEIGHTS))
    check(reference, folder)


@pytest.mark.parametrize("static", [True, False])
def test_positions_in_a_checkpoint_of_marian_are_used(tmp_path: Path, static: bool) -> None:
    """Learned ones, which Hugging Face's library reads but leaves out when it saves."""
    reference = randomized(MarianMTModel(MarianConfig(**BART)))
    folder = saved(reference, tmp_path, static_position_embeddings=static)
    tables = {
        f"model.{side}.embed_positions.weight": torch.randn(BART["max_position_embeddings"], BART["d_model"])
        for side in ("encoder", "decoder")
    }
    rewrite(folder, tables)
    check(MarianMTModel.from_pretrained(folder).eval(), folder)


def test_learned_positions_may_not_be_missing(tmp_path: Path) -> None:
    folder = saved(MarianMTModel(MarianConfig(**BART)), tmp_path, static_position_embeddings=False)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert caught.value.problems == (
        "tensor model.encoder.embed_positions.weight is missing",
        "tensor model.decoder.embed_positions.weight is missing",
    )


def test_embeddings_without_a_norm(tmp_path: Path) -> None:
    reference = randomized(BartForConditionalGeneration(BartConfig(**BART)))
    for side in (reference.model.encoder, reference.model.decoder):
        side.layernorm_embedding = torch.nn.Identity()
    check(reference, saved(reference, tmp_path, normalize_embedding=False))


def test_layers_without_a_norm_behind_the_last(tmp_path: Path) -> None:
    # Weights as large as elsewhere would make logits, not normalized, that float32 holds to fewer digits.
    reference = randomized(MBartForConditionalGeneration(MBartConfig(**BART)), std=0.2)
    for side in (reference.model.encoder, reference.model.decoder):
        side.layer_norm = torch.nn.Identity()
    check(reference, saved(reference, tmp_path, add_final_layer_norm=False))


def test_a_checkpoint_saved_without_the_head_has_no_bias_of_the_logits(tmp_path: Path) -> None:
    reference = randomized(BartForConditionalGeneration(BartConfig(**BART)))
    reference.final_logits_bias.zero_()
    reference.config.save_pretrained(tmp_path)
    reference.model.save_pretrained(tmp_path)
    model = check(reference, tmp_path)
    assert model.logits_bias is None


def test_a_pickled_checkpoint_holds_shared_matrices_under_all_their_names(tmp_path: Path) -> None:
    reference = randomized(BartForConditionalGeneration(BartConfig(**BART)))
    folder = saved(reference, tmp_path)
    (folder / WEIGHTS).unlink()
    torch.save(reference.state_dict(), folder / "pytorch_model.bin")
    check(reference, folder)


@pytest.mark.parametrize("name", ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"])
def test_a_shared_matrix_is_found_under_any_of_its_names(tmp_path: Path, name: str) -> None:
    reference = randomized(BartForConditionalGeneration(BartConfig(**BART)))
    folder = saved(reference, tmp_path)
    rewrite(folder, {name: reference.model.shared.weight, "model.shared.weight": None})
    check(reference, folder)


# T5 and mT5


@pytest.mark.parametrize("changes", [
    {}, {"feed_forward_proj": "gated-gelu"}, {"feed_forward_proj": "gated-silu"}, {"feed_forward_proj": "gelu"},
    {"tie_word_embeddings": False}, {"layer_norm_epsilon": 0.3}, {"d_kv": 4, "num_decoder_layers": None},
    {"relative_attention_num_buckets": 4, "relative_attention_max_distance": 3},
    {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
], ids=str)  # fmt: skip
def test_t5(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = randomized(T5ForConditionalGeneration(T5Config(**{**T5, **changes})))
    model = check(reference, saved(reference, tmp_path))
    assert model.head is None


@pytest.mark.parametrize("changes", [{}, {"feed_forward_proj": "relu"}], ids=str)
def test_mt5(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = randomized(MT5ForConditionalGeneration(MT5Config(**{**T5, **changes})))
    check(reference, saved(reference, tmp_path))


@pytest.mark.parametrize("family", [(T5ForConditionalGeneration, T5Config), (MT5ForConditionalGeneration, MT5Config)])
@pytest.mark.parametrize("says", [True, False])
def test_a_projection_of_its_own_is_used_whatever_the_config_says(tmp_path: Path, family: Any, says: bool) -> None:
    """flan-T5's config says that it is not tied; saved again by transformers 5, it says that it is."""
    model_class, config_class = family
    reference = randomized(model_class(config_class(**T5, tie_word_embeddings=False)))
    reference.lm_head.weight = torch.nn.Parameter(torch.randn(29, 20))
    model = check(reference, saved(reference, tmp_path, tie_word_embeddings=says))
    assert model.head is not None


def test_an_older_config_says_with_one_key_that_it_is_neither_tied_nor_scaled(tmp_path: Path) -> None:
    reference = randomized(T5ForConditionalGeneration(T5Config(**T5, tie_word_embeddings=False)))
    reference.lm_head.weight = torch.nn.Parameter(torch.randn(29, 20))
    check(reference, saved(reference, tmp_path, tie_word_embeddings=False, scale_decoder_outputs=None))


def test_an_untied_projection_may_not_be_missing(tmp_path: Path) -> None:
    folder = saved(T5ForConditionalGeneration(T5Config(**T5)), tmp_path, tie_word_embeddings=False)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert caught.value.problems == ("tensor lm_head.weight is missing",)


def test_distances_far_beyond_the_last_are_one_kind(tmp_path: Path) -> None:
    """A row much longer than relative_attention_max_distance, and than the steps that fill its cache."""
    reference = randomized(T5ForConditionalGeneration(T5Config(**T5)))
    model = load_checkpoint(saved(reference, tmp_path))
    source, target = torch.randint(29, (80,)), torch.randint(29, (60,))
    expected, lengths = reference_logits(reference, source, target), torch.tensor([80])
    with torch.no_grad():
        close(model(source[None], lengths, target[None])[0], expected)
        encoded, caches = model.encode(source[None], lengths), [torch.zeros(1, 5, 64, 6)] * 6
        for at in range(0, 60, 12):
            new = target[None, at : at + 12]
            logits, caches = model.step(new, torch.tensor([at]), torch.arange(12)[None], lengths, caches, encoded)
            close(logits[0], expected[at : at + 12])


# Configurations


@pytest.mark.parametrize(("model_type", "sizes"), [
    ("bart", BART), ("mbart", BART), ("marian", BART), ("t5", T5), ("mt5", T5),
])  # fmt: skip
def test_what_is_not_understood_is_refused_all_at_once(model_type: str, sizes: dict[str, Any]) -> None:
    values = {
        **sizes, "model_type": model_type, "gates": 3, "is_decoder": True, "vocab_size": 0, "d_model": "wide",
        "architectures": ["T5EncoderModel"],
    }  # fmt: skip
    found = problems(values)
    for expected in (
        "key 'gates' is not understood",
        "is_decoder is True, which is not supported: only False is",
        "vocab_size is 0, expected a whole number of at least 1",
        "d_model is 'wide', expected a whole number of at least 1",
        "architectures names 'T5EncoderModel', which is not supported: only models that read and write are",
    ):
        assert found.count(expected) == 1, found


@pytest.mark.parametrize(("values", "expected"), [
    ({"activation_function": "relu6"}, "activation_function is 'relu6', expected one of gelu, "),
    ({"normalize_before": True}, "normalize_before is True, which is not supported: only False is"),
    ({"do_blenderbot_90_layernorm": True}, "do_blenderbot_90_layernorm is True, which is not supported"),
    ({"encoder_attention_heads": 3}, "d_model 20 is not a multiple of encoder_attention_heads 3"),
    ({"decoder_start_token_id": 29}, "decoder_start_token_id is 29, outside the vocabulary of 29"),
    ({"decoder_vocab_size": 31}, "decoder_vocab_size is 31, vocab_size 29, and share_encoder_decoder_embeddings says"),
    ({"d_model": 15, "encoder_attention_heads": 5, "decoder_attention_heads": 3}, "d_model 15 is odd"),
    ({"architectures": ["MarianForCausalLM"]}, "architectures names 'MarianForCausalLM', which is not supported"),
])  # fmt: skip
def test_what_marian_cannot_be_is_said(values: dict[str, Any], expected: str) -> None:
    (problem,) = problems({**BART, "model_type": "marian", **values})
    assert problem.startswith(expected)


@pytest.mark.parametrize(("values", "expected"), [
    ({"feed_forward_proj": "gated"}, "feed_forward_proj is 'gated', expected one of gelu, "),
    ({"feed_forward_proj": "gated-gelu", "is_gated_act": False}, "is_gated_act is False, which is not supported"),
    ({"dense_act_fn": "silu"}, "dense_act_fn is 'silu', feed_forward_proj 'relu'"),
    ({"relative_attention_max_distance": 4}, "relative_attention_max_distance is 4, expected more than 4"),
    ({"scale_decoder_outputs": 1}, "scale_decoder_outputs is 1, expected true or false"),
])  # fmt: skip
def test_what_t5_cannot_be_is_said(values: dict[str, Any], expected: str) -> None:
    (problem,) = problems({**T5, "model_type": "t5", **values})
    assert problem.startswith(expected)


@pytest.mark.parametrize(("model_type", "sizes", "pad", "start", "ends"), [
    ("bart", BART, 1, 2, (2,)), ("mbart", BART, 1, 0, (2,)), ("marian", BART, 28, 28, (0,)), ("t5", T5, 0, 0, (1,)),
])  # fmt: skip
def test_tokens_that_a_config_leaves_out_are_the_familys(
    model_type: str, sizes: dict[str, Any], pad: int, start: int, ends: tuple[int, ...]
) -> None:
    tokens = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    config = read({**{key: value for key, value in sizes.items() if key not in tokens}, "model_type": model_type})
    assert (config.pad_token_id, config.start_token_id, config.eos_token_ids) == (pad, start, ends)


def test_tokens_are_those_that_a_config_names() -> None:
    config = read({**BART, "model_type": "mbart", "eos_token_id": [2, 5], "decoder_start_token_id": 7})
    assert (config.pad_token_id, config.start_token_id, config.eos_token_ids) == (1, 7, (2, 5))
