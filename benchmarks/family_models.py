"""A small model of each family with random weights: two layers, with heads as wide as those of real ones.

A family's configuration is given as its config.json would have it, so that all that is read of one is used here too.
"""

from __future__ import annotations

from typing import Any

import torch

from edgeformer.models.configs.keys import Keys
from edgeformer.models.families import FAMILIES, config_class, model_class

Values = dict[str, Any]

WIDTHS: Values = {"hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 512, "vocab_size": 1000}
DECODER: Values = {
    **WIDTHS, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
}  # fmt: skip
ENCODER: Values = {**WIDTHS, "num_hidden_layers": 2, "num_attention_heads": 4}
TRANSLATOR: Values = {
    "vocab_size": 1000, "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "max_position_embeddings": 512,
}  # fmt: skip
T5: Values = {"vocab_size": 1000, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 2, "num_heads": 4}

# By model_type; those that are built like another, as XLM-RoBERTa is like RoBERTa, are left out.
CONFIGS: dict[str, Values] = {
    "bart": TRANSLATOR,
    "mbart": TRANSLATOR,
    "marian": {**TRANSLATOR, "pad_token_id": 999, "decoder_start_token_id": 999},
    "t5": T5,
    "mt5": T5,
    "gpt2": {"vocab_size": 1000, "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "llama": DECODER,
    "mistral": {**DECODER, "sliding_window": 128},
    "qwen2": DECODER,
    "qwen3": DECODER,
    "bert": {**ENCODER, "architectures": ["BertForMaskedLM"]},
    "roberta": {**ENCODER, "architectures": ["RobertaForSequenceClassification"]},
    "distilbert": {
        "vocab_size": 1000, "dim": 256, "n_layers": 2, "n_heads": 4, "hidden_dim": 512, "max_position_embeddings": 512,
    },
}  # fmt: skip


def family_model(model_type: str) -> Any:
    """The same weights every time, for evaluation.

    Raises:
        KeyError: `CONFIGS` has no such family.
    """
    family, values = FAMILIES[model_type], {**CONFIGS[model_type], "model_type": model_type}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return model_class(family)(config_class(family).from_keys(Keys(values))).eval()
