"""Tiny random models of every family that generates, sized as ONNX Runtime's kernels take them, and steps of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.runtime import Model
from edgeformer.runtime.backends import Floats, Rows

from ..models import decoder_families, encoder_decoder_families
from . import own_decoder

ENCODER_DECODER: dict[str, Any] = {
    "vocab_size": 37, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 44, "max_position_embeddings": 64,
    "decoder_start_token_id": 2, "forced_eos_token_id": 2, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": 37, "d_model": 20, "d_kv": 8, "d_ff": 28, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0,
}  # fmt: skip


def decoder(variation: str, **more: Any) -> Callable[[Path], nn.Module]:
    def make(folder: Path) -> nn.Module:
        decoder_families.make(variation, **more).save_pretrained(folder)
        return load_checkpoint(folder)

    return make


def encoder_decoder(family: str, sizes: dict[str, Any], **more: Any) -> Callable[[Path], nn.Module]:
    def make(folder: Path) -> nn.Module:
        config = getattr(transformers, f"{family}Config")(**{**sizes, **more})
        name = "MarianMTModel" if family == "Marian" else f"{family}ForConditionalGeneration"
        with torch.random.fork_rng():
            torch.manual_seed(0)
            reference = encoder_decoder_families.randomized(getattr(transformers, name)(config))
        return load_checkpoint(encoder_decoder_families.saved(reference, folder))

    return make


MODULES: dict[str, Callable[[Path], nn.Module]] = {
    "own": lambda folder: own_decoder.make(),
    "gpt2": decoder("gpt2", n_embd=32),
    "gpt2 scaled by layer": decoder("gpt2 scaled by layer", n_embd=32),
    "llama": decoder("llama", head_dim=16),
    "llama yarn": decoder("llama yarn", head_dim=16),
    "llama heads of 8": decoder("llama biases", head_dim=8),
    "llama heads of 6": decoder("llama"),
    "mistral window": decoder("mistral window", head_dim=16),
    "qwen2 layer types": decoder("qwen2 layer types", head_dim=16),
    "qwen3 window": decoder("qwen3 window", head_dim=16),
    "bart": encoder_decoder("Bart", ENCODER_DECODER),
    "mbart": encoder_decoder("MBart", ENCODER_DECODER),
    "marian": encoder_decoder("Marian", ENCODER_DECODER),
    "t5": encoder_decoder("T5", T5),
    "mt5": encoder_decoder("MT5", T5),
}

SOURCES = [[5, 9, 3, 4, 8], [7, 3], [4, 30, 11, 6]]


def begin(model: Model, batch: int) -> Rows:
    if model.kind == "decoder":
        return model.executor.start_empty(batch, 64)
    return model.executor.start(SOURCES[:batch], 64)


def steps(model: Model) -> list[Floats]:
    """Logits of ragged prompts, single tokens, rows that are chosen, several tokens over pasts, caches that grow."""
    rng = np.random.default_rng(3)
    found: list[Floats] = []

    def step(rows: Rows, shape: tuple[int, int], lengths: list[int] | None = None, at: Any = None) -> None:
        ids, logits_at = rng.integers(3, 31, shape), None if at is None else np.array(at)
        found.append(rows.step(ids, None if lengths is None else np.array(lengths), logits_at).copy())

    rows = begin(model, 3)
    step(rows, (3, 5), [5, 2, 4])
    step(rows, (3, 1))
    step(rows, (3, 3), [3, 1, 2])  # by columns
    step(rows, (3, 6), [2, 6, 4], [[0, 1], [5, 2], [3, 3]])  # by rows
    of_sources = None if model.kind == "decoder" else np.array([2, 0])
    rows.select(np.array([2, 2, 0, 0]), of_sources)  # two beams of each
    for _ in range(12):
        step(rows, (4, 1))
    rows.close()
    alone = begin(model, 1)
    step(alone, (1, 7), None, [[0, 3, 6]])
    step(alone, (1, 9))
    alone.close()
    return found
