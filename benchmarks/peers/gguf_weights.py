"""LLaMA checkpoints of Hugging Face as GGUF files; runs where the package gguf is.

    theirs                                  GGUF
    model.embed_tokens                      token_embd, the vocabulary's matrix as well where there is no output
    model.layers.N.input_layernorm          blk.N.attn_norm
    model.layers.N.self_attn.{q,k,v}_proj   blk.N.attn_{q,k,v}
    model.layers.N.self_attn.o_proj         blk.N.attn_output
    model.layers.N.post_attention_layernorm blk.N.ffn_norm
    model.layers.N.mlp.{gate,up,down}_proj  blk.N.ffn_{gate,up,down}
    model.norm                              output_norm

Rotary positions turn the two halves of a head there and neighbours here, so rows of queries and keys change places.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARCHITECTURE = "llama"
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}  # fmt: skip
INSIDE = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_name(name: str) -> str:
    """The name that GGUF has for a tensor.

    Raises:
        KeyError: there is none.
    """
    if name in OUTSIDE:
        return OUTSIDE[name]
    head, layers, number, part = name.split(".", 3)
    if (head, layers) != ("model", "layers"):
        raise KeyError(name)
    return f"blk.{number}.{INSIDE[part.removesuffix('.weight')]}.weight"


def neighbours(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of queries or keys, (heads * head_dim, d_model), so that what is turned together stands side by side."""
    rows, width = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, width)  # (heads, half, pair, d_model)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, width))


def gguf_tensors(config: dict[str, Any], weights: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Every tensor as GGUF has it."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    found = {}
    for name, weight in weights.items():
        new = gguf_name(name)
        turned = heads.get(new.split(".")[-2])
        found[new] = neighbours(weight, turned) if turned else weight
    return found


def write_gguf(checkpoint: Path, path: Path) -> None:
    """A file in fp32, without a tokenizer: it is given ids."""
    from gguf import GGUFWriter
    from safetensors.numpy import load_file

    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    writer = GGUFWriter(path, ARCHITECTURE)
    writer.add_file_type(0)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for name, weight in gguf_tensors(config, load_file(checkpoint / "model.safetensors")).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
