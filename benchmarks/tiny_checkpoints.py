"""Tiny random checkpoints of every family, as Hugging Face's transformers saves them, with a tokenizer beside.

The paper's own model alone is a trained one: the example that spells words' sounds.

Widths are multiples of 32, so that weights go into 8 and 4 bits, and heads are 64 wide, as fused kernels have them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from edgeformer.models.checkpoint import load_checkpoint

G2P = Path(__file__).parents[1] / "examples" / "g2p" / "checkpoint"
SPECIAL = ("[PAD]", "[BOS]", "[EOS]", "[UNK]", "[MASK]")  # ids 0 to 4
VOCABULARY, LONGEST = 96, 160
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BART: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 320, "decoder_ffn_dim": 320, "max_position_embeddings": LONGEST,
    "decoder_start_token_id": 2, "forced_eos_token_id": 2, **TOKENS,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 256, "d_kv": 64, "d_ff": 320, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY, "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": LONGEST, **TOKENS
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 320, "max_position_embeddings": LONGEST, **TOKENS,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 40,
}  # fmt: skip
BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 320, "max_position_embeddings": LONGEST, "pad_token_id": 0, "num_labels": 5,
}  # fmt: skip
DISTILBERT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "dim": 256, "n_layers": 2, "n_heads": 4, "hidden_dim": 320,
    "max_position_embeddings": LONGEST, "pad_token_id": 0,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Variation:
    """A family in one of its variations.

    Attributes:
        model: the class of transformers, without `Config` in its configuration's name; empty for the example.
        head: what that class's name ends with.
        sizes: the configuration.
        generation: keys that generation_config.json has more.
        pooled: whether it becomes a folder of sentence-transformers.
    """

    model: str
    head: str
    sizes: Mapping[str, Any]
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pooled: bool = False


WRITES, SPEAKS = "ForConditionalGeneration", "ForCausalLM"
VARIATIONS: dict[str, Variation] = {
    "the paper's": Variation("", "", {}),
    "Marian": Variation("Marian", "MTModel", BART),
    "BART": Variation("Bart", WRITES, BART, {"min_new_tokens": 8}),  # begins with the end token, which is likely then
    "mBART": Variation("MBart", WRITES, BART, {"forced_bos_token_id": 9}),
    "T5": Variation("T5", WRITES, T5),
    "mT5, gated": Variation("MT5", WRITES, T5 | {"feed_forward_proj": "gated-gelu"}),
    "GPT-2": Variation("GPT2", "LMHeadModel", GPT2),
    "LLaMA": Variation("Llama", SPEAKS, LLAMA, {"eos_token_id": [2, 7]}),
    "LLaMA, llama3 positions": Variation("Llama", SPEAKS, LLAMA | {"rope_parameters": LLAMA3}),
    "Mistral, window": Variation("Mistral", SPEAKS, LLAMA | {"sliding_window": 12}),
    "Qwen2": Variation("Qwen2", SPEAKS, LLAMA),
    "Qwen3": Variation("Qwen3", SPEAKS, LLAMA),
    "BERT, hidden states": Variation("Bert", "Model", BERT),
    "BERT, classes": Variation("Bert", "ForSequenceClassification", BERT),
    "BERT, token labels": Variation("Bert", "ForTokenClassification", BERT),
    "BERT, masks": Variation("Bert", "ForMaskedLM", BERT),
    "RoBERTa": Variation("Roberta", "ForSequenceClassification", BERT),
    "DistilBERT": Variation("DistilBert", "Model", DISTILBERT),
    "sentence encoder": Variation("Bert", "Model", BERT, pooled=True),
}


def make_checkpoint(name: str, folder: Path) -> Any:
    """Save a variation, always with the same weights; returns the model that was saved."""
    variation = VARIATIONS[name]
    if not variation.model:
        shutil.copytree(G2P, folder)
        return load_checkpoint(folder)
    folder.mkdir()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make_theirs(variation, folder)
    write_tokenizer(folder)
    if variation.pooled:
        write_pooling(folder)
    return model.eval()


def make_theirs(variation: Variation, folder: Path) -> Any:
    config = getattr(transformers, f"{variation.model}Config")(**variation.sizes)
    model = getattr(transformers, variation.model + variation.head)(config)
    randomize(model)
    for key, value in variation.generation.items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def randomize(model: Any) -> None:
    """Weights far enough from 0 that searches go somewhere, and gains and biases that show where they are mixed up.

    Not further: what 4 bits do to random weights would drown what random models say.
    """
    gains = {"shared": 0.7, "embed_tokens": 2.0, "wte": 0.7, "lm_head": 0.5}
    if model.config.model_type in ("t5", "mt5"):  # their scores are not scaled
        gains["q"] = 0.1
        gains["shared"] = 8.0 if model.config.model_type == "t5" else 0.4  # T5's logits are, by 1 / sqrt(d_model)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:  # Marian's sinusoids
            continue
        if parameter.dim() == 1:
            parameter += 0.2 * torch.randn_like(parameter)
        else:
            gain = gains.get(name.split(".")[-2], 0.7)
            parameter.copy_(gain * torch.randn_like(parameter) / math.sqrt(min(parameter.shape)))


def write_tokenizer(folder: Path) -> None:
    """One token for each word `w5`, `w6`, ..., so that text and ids say the same."""
    words = [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), VOCABULARY))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    values = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")


def write_pooling(folder: Path) -> None:
    """What makes a folder one of sentence-transformers: mean pooling, then vectors of length 1."""
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")))
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": BERT["hidden_size"], "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
