"""Checkpoints with random weights, as Hugging Face's transformers saves them: one model for every engine to convert.

How fast a model is does not depend on what it knows. Matrices keep the variance of what they multiply, so that layers
weigh more than the embedding that they add to: what a model says does not merely repeat its input. The special tokens'
rows of the embedding are 0, so that their logits are, and none is ever the likeliest: no text ends early.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

SPECIAL = ("[PAD]", "[BOS]", "[EOS]", "[UNK]", "[MASK]")  # ids 0 to 4
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL = 0.02  # the standard deviation of embeddings and biases, and of gains from 1

Weights = dict[str, NDArray[np.float32]]


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model; `num_kv_heads` and `rope_theta` are LLaMA's alone."""

    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int
    vocab_size: int
    max_positions: int
    num_kv_heads: int = 0
    rope_theta: float = 1e5


DECODERS = {
    "135m": Shape(576, 30, 9, 1536, 49152, 8192, num_kv_heads=3),
    "tiny": Shape(64, 2, 4, 128, 512, 1024, num_kv_heads=2),
}
ENCODERS = {
    "base": Shape(768, 12, 12, 3072, 30522, 512),
    "tiny": Shape(64, 2, 4, 96, 512, 512),
}
TRANSFORMERS = {
    "base": Shape(512, 6, 8, 2048, 32000, 512),
    "tiny": Shape(64, 2, 4, 96, 512, 512),
}


class Random:
    """Draws weights: always the same ones, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.weights: Weights = {}

    def small(self, name: str, *shape: int) -> None:
        """What is added."""
        self.weights[name] = self.rng.standard_normal(shape, np.float32) * np.float32(SMALL)

    def embedding(self, name: str, vocab_size: int, d_model: int) -> None:
        self.small(name, vocab_size, d_model)
        self.weights[name][: len(SPECIAL)] = 0

    def matrix(self, name: str, outputs: int, inputs: int) -> None:
        self.weights[name] = self.rng.standard_normal((outputs, inputs), np.float32) / np.float32(math.sqrt(inputs))

    def linear(self, name: str, inputs: int, outputs: int) -> None:
        """A matrix and its bias."""
        self.matrix(f"{name}.weight", outputs, inputs)
        self.small(f"{name}.bias", outputs)

    def gain(self, name: str, size: int) -> None:
        self.small(name, size)
        self.weights[name] += 1

    def norm(self, name: str, size: int) -> None:
        """A gain and its bias."""
        self.gain(f"{name}.weight", size)
        self.small(f"{name}.bias", size)


def write_decoder(folder: Path, shape: Shape) -> None:
    """LLaMA's shape, with one matrix for the embedding and the vocabulary."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "hidden_size": shape.d_model, "num_hidden_layers": shape.num_layers, "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads, "intermediate_size": shape.d_ff, "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_positions, "rope_theta": shape.rope_theta, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "torch_dtype": "float32", **TOKENS,
    }  # fmt: skip
    write(folder, config, llama_weights(shape), shape.vocab_size)


def llama_weights(shape: Shape) -> Weights:
    random, d_model = Random(), shape.d_model
    cached = shape.num_kv_heads * (d_model // shape.num_heads)
    random.embedding("model.embed_tokens.weight", shape.vocab_size, d_model)
    for i in range(shape.num_layers):
        layer = f"model.layers.{i}"
        random.gain(f"{layer}.input_layernorm.weight", d_model)
        random.matrix(f"{layer}.self_attn.q_proj.weight", d_model, d_model)
        random.matrix(f"{layer}.self_attn.k_proj.weight", cached, d_model)
        random.matrix(f"{layer}.self_attn.v_proj.weight", cached, d_model)
        random.matrix(f"{layer}.self_attn.o_proj.weight", d_model, d_model)
        random.gain(f"{layer}.post_attention_layernorm.weight", d_model)
        random.matrix(f"{layer}.mlp.gate_proj.weight", shape.d_ff, d_model)
        random.matrix(f"{layer}.mlp.up_proj.weight", shape.d_ff, d_model)
        random.matrix(f"{layer}.mlp.down_proj.weight", d_model, shape.d_ff)
    random.gain("model.norm.weight", d_model)
    return random.weights


def write_encoder(folder: Path, shape: Shape) -> None:
    """BERT's shape, without a head and without its pooler."""
    config = {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "hidden_size": shape.d_model, "num_hidden_layers": shape.num_layers, "num_attention_heads": shape.num_heads,
        "intermediate_size": shape.d_ff, "vocab_size": shape.vocab_size, "type_vocab_size": 2,
        "max_position_embeddings": shape.max_positions, "hidden_dropout_prob": 0.1, "torch_dtype": "float32",
        "attention_probs_dropout_prob": 0.1, "pad_token_id": 0,
    }  # fmt: skip
    write(folder, config, bert_weights(shape), shape.vocab_size)


def bert_weights(shape: Shape) -> Weights:
    random, d_model = Random(), shape.d_model
    random.embedding("embeddings.word_embeddings.weight", shape.vocab_size, d_model)
    random.small("embeddings.position_embeddings.weight", shape.max_positions, d_model)
    random.small("embeddings.token_type_embeddings.weight", 2, d_model)
    random.norm("embeddings.LayerNorm", d_model)
    for i in range(shape.num_layers):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            random.linear(f"{layer}.attention.self.{part}", d_model, d_model)
        random.linear(f"{layer}.attention.output.dense", d_model, d_model)
        random.norm(f"{layer}.attention.output.LayerNorm", d_model)
        random.linear(f"{layer}.intermediate.dense", d_model, shape.d_ff)
        random.linear(f"{layer}.output.dense", shape.d_ff, d_model)
        random.norm(f"{layer}.output.LayerNorm", d_model)
    random.linear("pooler.dense", d_model, d_model)
    return random.weights


def write_transformer(folder: Path, shape: Shape) -> None:
    """The paper's encoder-decoder (Vaswani et al. 2017) in this project's own format, whose tokenizers are two."""
    config = {
        "model_type": "transformer", "vocab_size": shape.vocab_size, "d_model": shape.d_model,
        "num_heads": shape.num_heads, "num_encoder_layers": shape.num_layers, "num_decoder_layers": shape.num_layers,
        "d_ff": shape.d_ff, "max_positions": shape.max_positions, "activation": "relu", "norm_placement": "post",
        "positions": "sinusoidal", "scale_embeddings": True, "dropout": 0.1, "norm_eps": 1e-5, **TOKENS,
    }  # fmt: skip
    write(folder, config, transformer_weights(shape), shape.vocab_size)
    (folder / "target_tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())


def transformer_weights(shape: Shape) -> Weights:
    random, d_model = Random(), shape.d_model
    random.embedding("embedding.weight", shape.vocab_size, d_model)
    for kind, attentions in (("encoder", ("attention",)), ("decoder", ("attention", "cross_attention"))):
        for i in range(shape.num_layers):
            layer = f"{kind}_layers.{i}"
            for attention in attentions:
                for part in ("query", "key", "value", "output"):
                    random.linear(f"{layer}.{attention}.{part}", d_model, d_model)
                random.norm(f"{layer}.{attention.removesuffix('_attention')}_residual.norm", d_model)
            random.linear(f"{layer}.feed_forward.inner", d_model, shape.d_ff)
            random.linear(f"{layer}.feed_forward.outer", shape.d_ff, d_model)
            random.norm(f"{layer}.feed_forward_residual.norm", d_model)
    return random.weights


def write(folder: Path, config: dict[str, Any], weights: Weights, vocab_size: int) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    if "eos_token_id" in config:
        (folder / "generation_config.json").write_text(json.dumps(TOKENS), encoding="utf-8")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    write_tokenizer(folder, vocab_size)


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """One token for each word `w5`, `w6`, ..., since engines are given ids and some ask for a tokenizer."""
    words = [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), vocab_size))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    values = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")


WRITERS = {
    "decoder": (write_decoder, DECODERS),
    "encoder": (write_encoder, ENCODERS),
    "paper": (write_transformer, TRANSFORMERS),
}
