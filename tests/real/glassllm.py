"""glassllm's LLaMA (PyPI `glassllm`, MIT): 0.85 million parameters, and a forward pass of its own in NumPy."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

REQUIREMENT = "glassllm==0.1.0"
LANGUAGES = ("en", "pt")
NAMES = {
    "norm1.gamma": "input_layernorm.weight",
    "norm2.gamma": "post_attention_layernorm.weight",
    "attn.W_Q": "self_attn.q_proj.weight",
    "attn.W_K": "self_attn.k_proj.weight",
    "attn.W_V": "self_attn.v_proj.weight",
    "attn.W_O": "self_attn.o_proj.weight",
    "ffn.W1": "mlp.gate_proj.weight",
    "ffn.W3": "mlp.up_proj.weight",
    "ffn.W2": "mlp.down_proj.weight",
}


def convert(files: Path, language: str, folder: Path) -> None:
    """Write the checkpoint folder that the same model would have in Hugging Face's format."""
    convert_model(files, language, folder)
    convert_tokenizer(files, language, folder)


def convert_model(files: Path, language: str, folder: Path) -> None:
    with np.load(files / "glassllm" / "weights" / f"{language}.npz") as archive:
        arrays = dict(archive)
    sizes = json.loads(str(arrays.pop("__config__")))
    tensors = {
        "model.embed_tokens.weight": arrays.pop("E"),
        "model.norm.weight": arrays.pop("norm_f.gamma"),
    }
    for name, array in arrays.items():
        _, layer, part = name.split(".", 2)
        tensors[f"model.layers.{layer}.{NAMES[part]}"] = np.ascontiguousarray(array.T)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "llama",
        "vocab_size": sizes["vocab_size"],
        "hidden_size": sizes["d_model"],
        "num_hidden_layers": sizes["n_layers"],
        "num_attention_heads": sizes["n_heads"],
        "num_key_value_heads": sizes["n_kv_heads"],
        "intermediate_size": int(8 * sizes["d_model"] / 3),
        "max_position_embeddings": sizes["max_len"],
        "rope_theta": sizes["rope_base"],
        "rotary_interleaved": True,
        "rms_norm_eps": sizes["eps"],
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def convert_tokenizer(files: Path, language: str, folder: Path) -> None:
    """Pairs of characters, merged within words; a space is a character of the word behind it."""
    text = (files / "glassllm" / "weights" / f"{language}.tokenizer.json").read_text(encoding="utf-8")
    alphabet, merges = (json.loads(text)[name] for name in ("alphabet", "merges"))
    vocabulary = ["<pad>", "<unk>", "<bos>", "<eos>", *alphabet, *map("".join, merges)]
    ids = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[(a, b) for a, b in merges], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n|▁*[^▁\n]+|▁+"), "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    tokenizer.save(str(folder / "tokenizer.json"))


@contextmanager
def importable(files: Path) -> Iterator[Any]:
    """The package itself, imported from its unzipped wheel."""
    sys.path.insert(0, str(files))
    try:
        yield importlib.import_module("glassllm")
    finally:
        sys.path.remove(str(files))
