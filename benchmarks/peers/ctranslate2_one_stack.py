"""LLaMA and BERT checkpoints of Hugging Face as CTranslate2 models, through CTranslate2's own specification classes.

Its converters read these families as well, with PyTorch and transformers, which are not installed here.

    theirs                                              CTranslate2
    self_attn.{q,k,v}_proj | attention.self.{...}       self_attention.linear[0], stacked; output is linear[1]
    mlp.gate_proj, up_proj, down_proj                   ffn.linear_0, linear_0_noact, linear_1
    model.embed_tokens                                  embeddings and projection, stored once
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs.common_spec import Activation, EmbeddingsMerge, LinearSpec, Quantization
from ctranslate2.specs.transformer_spec import (
    TransformerDecoderModelSpec,
    TransformerEncoderModelSpec,
    TransformerEncoderSpec,
)
from ctranslate2_convert import Weights, set_linear, set_norm
from safetensors.numpy import load_file
from tokenizers import Tokenizer


def write_llama(checkpoint: Path, output: Path, quantization: str) -> None:
    """Write the model of a language model whose vocabulary's matrix is its embedding."""
    config, weights = read(checkpoint)
    spec = TransformerDecoderModelSpec.from_config(
        config["num_hidden_layers"], config["num_attention_heads"], activation=Activation.SWISH, pre_norm=True,
        ffn_glu=True, rms_norm=True, rotary_dim=0, rotary_interleave=False, rotary_base=config["rope_theta"],
        num_heads_kv=config["num_key_value_heads"], quant_type=Quantization.CT2,
    )  # fmt: skip
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = weights.pop("model.embed_tokens.weight")
    decoder.layer_norm.gamma = weights.pop("model.norm.weight")
    for i, layer in enumerate(decoder.layer):
        name = f"model.layers.{i}"
        attention, feed_forward = layer.self_attention, layer.ffn
        attention.layer_norm.gamma = weights.pop(f"{name}.input_layernorm.weight")
        set_matrix(attention.linear[0], weights, *(f"{name}.self_attn.{part}_proj" for part in "qkv"))
        set_matrix(attention.linear[1], weights, f"{name}.self_attn.o_proj")
        feed_forward.layer_norm.gamma = weights.pop(f"{name}.post_attention_layernorm.weight")
        set_matrix(feed_forward.linear_0, weights, f"{name}.mlp.gate_proj")
        set_matrix(feed_forward.linear_0_noact, weights, f"{name}.mlp.up_proj")
        set_matrix(feed_forward.linear_1, weights, f"{name}.mlp.down_proj")
    spec.config.layer_norm_epsilon = config["rms_norm_eps"]
    tokens = vocabulary(checkpoint)
    spec.config.bos_token, spec.config.eos_token = (tokens[config[f"{name}_token_id"]] for name in ("bos", "eos"))
    finish(spec, tokens, weights, output, quantization)


def write_bert(checkpoint: Path, output: Path, quantization: str) -> None:
    """Write an encoder's model, without its pooler."""
    config, weights = read(checkpoint)
    spec = TransformerEncoderModelSpec(
        TransformerEncoderSpec(
            config["num_hidden_layers"], config["num_attention_heads"], pre_norm=False, activation=Activation.GELU,
            layernorm_embedding=True, num_source_embeddings=2, embeddings_merge=EmbeddingsMerge.ADD,
        )
    )  # fmt: skip
    encoder = spec.encoder
    encoder.scale_embeddings = False
    encoder.embeddings[0].weight = weights.pop("embeddings.word_embeddings.weight")
    encoder.embeddings[1].weight = weights.pop("embeddings.token_type_embeddings.weight")
    encoder.position_encodings.encodings = weights.pop("embeddings.position_embeddings.weight")
    set_norm(encoder.layernorm_embedding, weights, "embeddings.LayerNorm")
    for i, layer in enumerate(encoder.layer):
        name = f"encoder.layer.{i}"
        attention, feed_forward = layer.self_attention, layer.ffn
        set_linear(attention.linear[0], weights, *(f"{name}.attention.self.{p}" for p in ("query", "key", "value")))
        set_linear(attention.linear[1], weights, f"{name}.attention.output.dense")
        set_norm(attention.layer_norm, weights, f"{name}.attention.output.LayerNorm")
        set_linear(feed_forward.linear_0, weights, f"{name}.intermediate.dense")
        set_linear(feed_forward.linear_1, weights, f"{name}.output.dense")
        set_norm(feed_forward.layer_norm, weights, f"{name}.output.LayerNorm")
    spec.config.layer_norm_epsilon = config["layer_norm_eps"]
    for part in ("weight", "bias"):
        del weights[f"pooler.dense.{part}"]
    finish(spec, vocabulary(checkpoint), weights, output, quantization)


def read(checkpoint: Path) -> tuple[dict[str, Any], Weights]:
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    return config, load_file(checkpoint / "model.safetensors")


def vocabulary(checkpoint: Path) -> list[str]:
    """The token of every id."""
    ids = Tokenizer.from_file(str(checkpoint / "tokenizer.json")).get_vocab(with_added_tokens=True)
    return sorted(ids, key=lambda token: ids[token])


def set_matrix(spec: LinearSpec, weights: Weights, *names: str) -> None:
    """A linear map without a bias, or several of the same input stacked into one."""
    spec.weight = np.concatenate([weights.pop(f"{name}.weight") for name in names])


def finish(spec: Any, tokens: list[str], weights: Weights, output: Path, quantization: str) -> None:
    """Write what is whole.

    Raises:
        ValueError: tensors are left over.
    """
    if weights:
        raise ValueError(f"tensors that are not understood: {', '.join(weights)}")
    spec.config.unk_token = tokens[3]
    spec.register_vocabulary(tokens)
    spec.validate()
    spec.optimize(quantization=quantization)
    output.mkdir(parents=True)
    spec.save(str(output))
