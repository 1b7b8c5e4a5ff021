"""Tiny random decoders of Hugging Face's transformers in every variation, and what runs ours beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

# No two sizes are the same, so that none can stand in for another.
SIZES: dict[str, Any] = {
    "vocab_size": 37, "hidden_size": 20, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 6, "intermediate_size": 28, "max_position_embeddings": 64,
}  # fmt: skip
GPT2_SIZES = {"vocab_size": 37, "n_embd": 20, "n_layer": 3, "n_head": 4, "n_positions": 64}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 100.0, "factor": 2.0, "original_max_position_embeddings": 32,
    "short_factor": [1.0, 1.5, 2.5], "long_factor": [2.0, 4.0, 8.0],
}  # fmt: skip

# The family, and what is not as its configuration has it by default.
VARIATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", {}),
    "gpt2 untied": ("GPT2", {"tie_word_embeddings": False}),
    "gpt2 inner width and relu": ("GPT2", {"n_inner": 28, "activation_function": "relu"}),
    "gpt2 unscaled": ("GPT2", {"scale_attn_weights": False}),
    "gpt2 scaled by layer": ("GPT2", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt2 reordered": ("GPT2", {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True}),
    "llama": ("Llama", {}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama ungrouped": ("Llama", {"num_key_value_heads": None}),
    "llama one key": ("Llama", {"num_key_value_heads": 1}),
    "llama implied head_dim": ("Llama", {"head_dim": None, "hidden_size": 24}),
    "llama gelu and eps": ("Llama", {"hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 0.1}),
    "llama theta": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}),
    "llama linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}}),
    "llama dynamic": ("Llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0}}),
    "llama llama3": ("Llama", {"rope_parameters": LLAMA3}),
    "llama yarn": ("Llama", {"rope_parameters": YARN}),
    "llama yarn without truncation": ("Llama", {"rope_parameters": {**YARN, "truncate": False}}),
    "llama yarn with mscale": ("Llama", {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 2.0}}),
    "llama yarn with betas": (
        "Llama", {"rope_parameters": {**YARN, "beta_fast": 4.0, "beta_slow": 0.5, "attention_factor": 1.3}}
    ),
    "llama longrope": ("Llama", {"rope_parameters": LONGROPE}),
    "llama longrope with attention_factor": ("Llama", {"rope_parameters": {**LONGROPE, "attention_factor": 1.2}}),
    "mistral": ("Mistral", {}),
    "mistral window": ("Mistral", {"sliding_window": 4}),
    "mistral window of two": ("Mistral", {"sliding_window": 2}),
    "mistral no window": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen2 tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2 window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    "qwen2 layer types": (
        "Qwen2",
        {
            "use_sliding_window": True,
            "sliding_window": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen2 yarn": ("Qwen2", {"rope_parameters": YARN}),
    "qwen3": ("Qwen3", {}),
    "qwen3 biases": ("Qwen3", {"attention_bias": True}),
    "qwen3 window": ("Qwen3", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}),
}  # fmt: skip


def make(variation: str, **more: Any) -> Any:
    """A random model of a variation, always the same, in which every tensor matters."""
    family, changes = VARIATIONS[variation]
    sizes = GPT2_SIZES if family == "GPT2" else SIZES
    config = getattr(transformers, f"{family}Config")(**{**sizes, **TOKENS, **changes, **more})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model_class = getattr(transformers, "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")
        model = model_class._from_config(config, attn_implementation="eager").eval()
        for parameter in model.parameters():
            if parameter.dim() == 1:  # biases and gains begin at 0 and 1, where a mix-up would not show
                parameter.data += 0.3 * torch.randn_like(parameter)
            else:
                parameter.data = torch.randn_like(parameter) / math.sqrt(min(parameter.shape))
    return model.requires_grad_(False)


def save(variation: str, folder: Path) -> Any:
    """Save a variation's checkpoint; returns the model."""
    model = make(variation)
    model.save_pretrained(folder)
    return model


def random_rows(lengths: Sequence[int], vocab_size: int = SIZES["vocab_size"]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, vocab_size, (length,), generator=generator) for length in lengths]


def empty_caches(config: Any, batch: int, capacity: int) -> list[Tensor]:
    """Caches that hold numbers which would show in every sum, were they not masked."""
    shape = (batch, config.num_kv_heads, capacity, config.head_dim)
    return [torch.full(shape, 1e3) for _ in range(2 * config.num_layers)]


@torch.no_grad()
def stepwise(model: Any, rows: Sequence[Tensor], steps: Sequence[Sequence[int]], capacity: int) -> list[Tensor]:
    """Logits of each row, (length, vocab_size), read through a cache.

    Args:
        rows: token ids.
        steps: for each step, how many tokens each row reads; the shorter are padded.
        capacity: of the caches.
    """
    caches, lengths = empty_caches(model.config, len(rows), capacity), [0] * len(rows)
    logits: list[list[Tensor]] = [[] for _ in rows]
    for counts in steps:
        ids = torch.full((len(rows), max(counts)), model.config.vocab_size - 1)
        for i, (row, count) in enumerate(zip(rows, counts, strict=True)):
            ids[i, :count] = row[lengths[i] : lengths[i] + count]
        at = torch.arange(max(counts)).expand(len(rows), -1)
        out, caches = model.step(ids, torch.tensor(lengths), at, caches)
        for i, count in enumerate(counts):
            logits[i].append(out[i, :count])
        lengths = [length + count for length, count in zip(lengths, counts, strict=True)]
    return [torch.cat(parts) for parts in logits]


@torch.no_grad()
def greedy(model: Any, prompt: Tensor, new_tokens: int, never: int | None = None) -> list[int]:
    """The likeliest token after the other, but for one that is never taken, through a cache."""
    caches, ids, said = empty_caches(model.config, 1, len(prompt) + new_tokens), prompt[None], list[int]()
    length = torch.tensor([0])
    while len(said) < new_tokens:
        logits, caches = model.step(ids, length, torch.tensor([[ids.shape[1] - 1]]), caches)
        length = length + ids.shape[1]
        if never is not None:
            logits[0, 0, never] = -math.inf
        said.append(int(logits[0, 0].argmax()))
        ids = torch.tensor([said[-1:]])
    return said
