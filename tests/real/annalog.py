"""annalog (PyPI `annalog`, MIT): 4 million parameters that turn a molecule's SMILES into similar ones, in PyTorch."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor

from edgeformer.models.stored import renamed

REQUIREMENT = "annalog==1.0.6"
NUM_HEADS = 8  # which no tensor shows
UNK, PAD, START, END = "<unk>", "<pad>", "<sos>", "<eos>"
# What a SMILES is made of: atoms in brackets, rings of two digits, elements of two letters, and single characters.
TOKEN = r"\[[^\]]*\]|%\d{2}|Br|Cl|."
# Its names, and those of Hugging Face's Marian, one after the other.
RULES = (
    (r"^(encoder|decoder)", r"model.\1"),
    (r"(tok|pos)_embedding", r"embed_\1"),
    (r"embed_tok", "embed_tokens"),
    (r"embed_pos", "embed_positions"),
    (r"self_attention", "self_attn"),
    (r"encoder_attention", "encoder_attn"),
    (r"fc_(q|k|v)\.", r"\1_proj."),
    (r"fc_o\.", "out_proj."),
    (r"positionwise_feedforward\.fc_", "fc"),
    (r"enc_attn_layer_norm", "encoder_attn_layer_norm"),
    (r"ff_layer_norm", "final_layer_norm"),
    (r"model\.decoder\.fc_out\.weight", "lm_head.weight"),
    (r"model\.decoder\.fc_out\.bias", "final_logits_bias"),
)


class PlainUnpickler(pickle.Unpickler):
    """Reads numbers, strings, lists and dictionaries, and nothing that would run."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_tokens(files: Path) -> list[str]:
    """The vocabulary, in the order of its ids; source and target have the same."""
    with (files / "annalog" / "ckpt_and_vocab" / "stereo_experiment_vocab_ttf.pkl").open("rb") as file:
        tokens: list[str] = PlainUnpickler(file).load()["itos"]
    return tokens


def read_tensors(files: Path) -> dict[str, Tensor]:
    path = files / "annalog" / "ckpt_and_vocab" / "Lev_extended.pt"
    tensors: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return tensors


def convert(files: Path, folder: Path) -> None:
    """Write the checkpoint folder that the same model would have as Marian with learned positions."""
    tokens, given = read_tokens(files), read_tensors(files)
    tensors = {renamed(name, RULES): tensor.contiguous() for name, tensor in given.items()}
    tensors["final_logits_bias"] = tensors["final_logits_bias"][None]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    d_ff, d_model = tensors["model.encoder.layers.0.fc1.weight"].shape
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in {
            "layers": len({name.split(".")[3] for name in tensors if name.startswith(f"model.{side}.layers.")}),
            "attention_heads": NUM_HEADS,
            "ffn_dim": d_ff,
        }.items()
    }
    config = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": len(tokens),
        "decoder_vocab_size": len(tokens),
        "d_model": d_model,
        **sides,
        "activation_function": "relu",
        "max_position_embeddings": len(tensors["model.encoder.embed_positions.weight"]),
        "static_position_embeddings": False,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "pad_token_id": tokens.index(PAD),
        "bos_token_id": tokens.index(START),
        "decoder_start_token_id": tokens.index(START),
        "eos_token_id": tokens.index(END),
        "forced_eos_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    build_tokenizer(tokens).save(str(folder / "tokenizer.json"))


def build_tokenizer(tokens: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=UNK))
    tokenizer.add_special_tokens([UNK, PAD, START, END])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(TOKEN), "isolated")
    ends = [(token, tokens.index(token)) for token in (START, END)]
    tokenizer.post_processor = processors.TemplateProcessing(f"{START} $A {END}", special_tokens=ends)
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def load_module(files: Path, name: str) -> Any:
    """A module of its package `model_files`, without the package around it, which wants chemistry's libraries."""
    package = types.ModuleType("annalog_model_files")
    package.__path__ = [str(files / "annalog" / "model_files")]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}.{name}")


def load_original(files: Path) -> Any:
    """Its own PyTorch module with its own weights."""
    module, tensors, tokens = load_module(files, "seq2seq_attention"), read_tensors(files), read_tokens(files)
    d_ff, d_model = tensors["encoder.layers.0.positionwise_feedforward.fc_1.weight"].shape
    max_length = len(tensors["encoder.pos_embedding.weight"])
    sizes = (len(tokens), d_model, 3, NUM_HEADS, d_ff, 0.0, torch.device("cpu"), max_length)
    pad = tokens.index(PAD)
    model = module.Seq2Seq(module.Encoder(*sizes), module.Decoder(*sizes), pad, pad, torch.device("cpu"))
    model.load_state_dict(tensors)
    return model.eval()
