"""Our Transformer checkpoints as CTranslate2 models, through CTranslate2's own specification classes.

CTranslate2 has no converter for this format, so each weight is put where its `TransformerSpec` wants it:

    ours                                        CTranslate2
    {query,key,value} of a self-attention       self_attention.linear[0], stacked; output is linear[1]
    query | {key,value} of a cross-attention    attention.linear[0] | linear[1], stacked; output is linear[2]
    {attention,cross,feed_forward}_residual     layer_norm of that sublayer, before or behind it by `pre_norm`
    embedding                                   both embeddings and the projection, stored once
    positions                                   position_encodings: CTranslate2's own sinusoids differ from the paper's
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import FeedForwardSpec, TransformerSpec
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

Weights = dict[str, NDArray[np.float32]]
ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}
TOKENIZERS = ("tokenizer.json", "target_tokenizer.json")
# Every key of the config that changes the mathematics, or that a model is free to carry (dropout).
CONFIG_KEYS = frozenset(
    "model_type vocab_size d_model num_heads num_encoder_layers num_decoder_layers d_ff max_positions activation"
    " norm_placement positions scale_embeddings dropout norm_eps pad_token_id bos_token_id eos_token_id".split()
)


class ConversionError(Exception):
    """The checkpoint can't be converted; the message says why."""


def convert(checkpoint: Path, output: Path, quantization: str) -> None:
    """Write the CTranslate2 model of a checkpoint folder, with the tokenizers beside it.

    Args:
        output: a folder that is missing or empty.
        quantization: one of CTranslate2's, such as `float32` or `int8`.

    Raises:
        ConversionError: a file is missing or damaged, a key or tensor is missing or not understood, or output is not
            empty.
    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConversionError(f"{output} is not an empty folder")
    try:
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        tensors = load_file(checkpoint / "model.safetensors")
        tokens = vocabulary(checkpoint, config["vocab_size"])
        weights = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
        spec = build_spec(config, tokens, weights)
    except (OSError, ValueError, SafetensorError) as error:
        raise ConversionError(f"{checkpoint} cannot be read: {error}") from error
    except KeyError as error:
        raise ConversionError(f"{checkpoint} has no {error}") from error
    if weights:
        raise ConversionError(f"{checkpoint} has tensors that are not understood: {', '.join(weights)}")
    for name in TOKENIZERS:
        spec.register_file(str(checkpoint / name), name)
    spec.validate()
    spec.optimize(quantization=quantization)
    output.mkdir(parents=True, exist_ok=True)
    spec.save(str(output))


def vocabulary(checkpoint: Path, vocab_size: int) -> list[str]:
    """The token of every id, from two tokenizers that share one range of ids."""
    texts = [(checkpoint / name).read_text(encoding="utf-8") for name in TOKENIZERS]
    ids = [Tokenizer.from_str(text).get_vocab(with_added_tokens=True) for text in texts]
    tokens = {i: token for vocab in ids for token, i in vocab.items()}
    if sorted(tokens) != list(range(vocab_size)):
        raise ConversionError(f"the tokenizers of {checkpoint} do not name every id below {vocab_size} and no other")
    if len(set(tokens.values())) != vocab_size:
        raise ConversionError(f"the tokenizers of {checkpoint} give one token two ids, which CTranslate2 cannot hold")
    return [tokens[i] for i in range(vocab_size)]


def build_spec(config: dict[str, Any], tokens: list[str], weights: Weights) -> TransformerSpec:
    """The filled specification; what it uses is taken out of `weights`."""
    if unknown := sorted(config.keys() - CONFIG_KEYS):
        raise ConversionError(f"config.json has keys that are not understood: {', '.join(unknown)}")
    if config["model_type"] != "transformer":
        raise ConversionError(f"model_type is {config['model_type']!r}; known: transformer")
    pre_norm = config["norm_placement"] == "pre"
    spec = TransformerSpec.from_config(
        (config["num_encoder_layers"], config["num_decoder_layers"]),
        config["num_heads"],
        pre_norm=pre_norm,
        activation=ACTIVATIONS[config["activation"]],
    )
    set_conventions(spec, config, tokens)
    embedding = weights.pop("embedding.weight")
    positions = weights.pop("positions") if config["positions"] == "learned" else sinusoids(config)
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = config["scale_embeddings"]
        stack.position_encodings.encodings = positions
    for i, layer in enumerate(spec.encoder.layer):
        set_layer(layer, weights, f"encoder_layers.{i}")
    for i, layer in enumerate(spec.decoder.layer):
        set_layer(layer, weights, f"decoder_layers.{i}")
        set_cross_attention(layer.attention, weights, f"decoder_layers.{i}")
    if pre_norm:
        set_norm(spec.encoder.layer_norm, weights, "encoder_norm")
        set_norm(spec.decoder.layer_norm, weights, "decoder_norm")
    return spec


def set_conventions(spec: TransformerSpec, config: dict[str, Any], tokens: list[str]) -> None:
    """Special tokens and the epsilon. The source's end token comes from the tokenizer, so CTranslate2 adds none."""
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    start, end, pad = (tokens[config[f"{name}_token_id"]] for name in ("bos", "eos", "pad"))
    spec.config.bos_token, spec.config.decoder_start_token, spec.config.eos_token = start, start, end
    spec.config.unk_token = pad  # Without one that exists, CTranslate2 adds an id that the embedding has no row for.
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.layer_norm_epsilon = config["norm_eps"]


def sinusoids(config: dict[str, Any]) -> NDArray[np.float32]:
    """The paper's position encodings (section 3.5), sine and cosine in turn: (max_positions, d_model)."""
    rates = 10000.0 ** (-np.arange(0, config["d_model"], 2) / config["d_model"])
    angles = np.arange(config["max_positions"])[:, None] * rates  # (max_positions, d_model / 2)
    return np.stack((np.sin(angles), np.cos(angles)), axis=-1).reshape(len(angles), -1).astype(np.float32)


def set_layer(layer: Any, weights: Weights, name: str) -> None:
    """What encoder and decoder layers have in common: self-attention and feed-forward."""
    attention: MultiHeadAttentionSpec = layer.self_attention
    set_linear(attention.linear[0], weights, *(f"{name}.attention.{part}" for part in ("query", "key", "value")))
    set_linear(attention.linear[1], weights, f"{name}.attention.output")
    set_norm(attention.layer_norm, weights, f"{name}.attention_residual.norm")
    feed_forward: FeedForwardSpec = layer.ffn
    set_linear(feed_forward.linear_0, weights, f"{name}.feed_forward.inner")
    set_linear(feed_forward.linear_1, weights, f"{name}.feed_forward.outer")
    set_norm(feed_forward.layer_norm, weights, f"{name}.feed_forward_residual.norm")


def set_cross_attention(attention: MultiHeadAttentionSpec, weights: Weights, name: str) -> None:
    set_linear(attention.linear[0], weights, f"{name}.cross_attention.query")
    set_linear(attention.linear[1], weights, *(f"{name}.cross_attention.{part}" for part in ("key", "value")))
    set_linear(attention.linear[2], weights, f"{name}.cross_attention.output")
    set_norm(attention.layer_norm, weights, f"{name}.cross_residual.norm")


def set_linear(spec: LinearSpec, weights: Weights, *names: str) -> None:
    """One linear map, or several of the same input stacked into one."""
    spec.weight = np.concatenate([weights.pop(f"{name}.weight") for name in names])
    spec.bias = np.concatenate([weights.pop(f"{name}.bias") for name in names])


def set_norm(spec: LayerNormSpec, weights: Weights, name: str) -> None:
    spec.gamma, spec.beta = weights.pop(f"{name}.weight"), weights.pop(f"{name}.bias")
