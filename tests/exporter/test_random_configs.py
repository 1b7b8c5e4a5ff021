"""Configurations that nobody thought of: random ones of every kind, from checkpoint to runtime.

Each is compared with the same weights in Hugging Face's transformers: log-probabilities of a ragged batch and greedy
texts, or hidden states. EDGEFORMER_RANDOM_CONFIGS=100 tries so many of each kind instead of a few.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.runtime import GenerationConfig, Model, load, load_encoder

from ..models.encoder_decoder_families import randomized, saved

COUNT = int(os.environ.get("EDGEFORMER_RANDOM_CONFIGS", "4"))
SIZES = (8, 12, 16, 20, 24, 32)
NEW_TOKENS = 5
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
STD = 0.2  # of weights: large enough for every one to matter, small enough that texts are not of one token
Rows = list[list[int]]


def decoder(rng: Random) -> Any:
    """A configuration of a model that goes on from prompts."""
    family = rng.choice(["GPT2", "Llama", "Mistral", "Qwen2", "Qwen3"])
    heads, layers, vocab_size = rng.randint(1, 4), rng.randint(1, 3), rng.randint(20, 60)
    tied = rng.random() < 0.5
    if family == "GPT2":
        return transformers.GPT2Config(
            vocab_size=vocab_size, n_embd=heads * rng.choice(SIZES), n_layer=layers, n_head=heads, n_positions=64,
            n_inner=rng.choice([None, *SIZES]), activation_function=rng.choice(["gelu_new", "gelu", "relu", "silu"]),
            scale_attn_weights=rng.random() < 0.8, scale_attn_by_inverse_layer_idx=rng.random() < 0.3,
            layer_norm_epsilon=rng.choice([1e-5, 1e-3]), tie_word_embeddings=tied, **TOKENS,
        )  # fmt: skip
    key_heads = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    window = rng.choice([None, 1, 3, 8, 40])
    changes: dict[str, Any] = {
        "rope_parameters": rng.choice(
            [
                {"rope_type": "default", "rope_theta": rng.choice([10.0, 1e4])},
                {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0},
                {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0},
                {
                    "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16,
                },
                {
                    "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
                },
            ]
        )
    }  # fmt: skip
    if family == "Llama":
        changes |= {"attention_bias": rng.random() < 0.5, "mlp_bias": rng.random() < 0.5}
    if family == "Mistral":
        changes |= {"sliding_window": window}
    if family.startswith("Qwen"):
        of_window = {"sliding_window": window or 4, "max_window_layers": rng.randint(0, layers)}
        changes |= {"use_sliding_window": window is not None, **of_window}
    if family == "Qwen3":
        changes |= {"attention_bias": rng.random() < 0.5}
    return getattr(transformers, f"{family}Config")(
        vocab_size=vocab_size, hidden_size=heads * rng.choice(SIZES), num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=key_heads, head_dim=rng.choice(SIZES),
        intermediate_size=rng.choice(SIZES), max_position_embeddings=64,
        hidden_act=rng.choice(["silu", "gelu", "gelu_pytorch_tanh", "relu"]),
        rms_norm_eps=rng.choice([1e-6, 1e-3]), tie_word_embeddings=tied, **TOKENS, **changes,
    )  # fmt: skip


def encoder_decoder(rng: Random) -> Any:
    """A configuration of a model that reads a source."""
    family = rng.choice(["Bart", "MBart", "Marian", "T5", "MT5"])
    vocab_size, layers = rng.randint(20, 60), (rng.randint(1, 3), rng.randint(1, 3))
    if family.endswith("T5"):
        return getattr(transformers, f"{family}Config")(
            vocab_size=vocab_size, d_model=rng.choice(SIZES), d_kv=rng.choice(SIZES), d_ff=rng.choice(SIZES),
            num_layers=layers[0], num_decoder_layers=layers[1], num_heads=rng.randint(1, 4),
            relative_attention_num_buckets=rng.choice([4, 8, 32]), relative_attention_max_distance=rng.choice([12, 40]),
            feed_forward_proj=rng.choice(["relu", "gated-gelu", "gated-silu"]), tie_word_embeddings=rng.random() < 0.5,
            layer_norm_epsilon=rng.choice([1e-6, 1e-3]), pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        )  # fmt: skip
    heads = rng.randint(1, 4), rng.randint(1, 4)
    width = 12 * rng.choice([1, 2, 4])  # which each number of heads divides, and is even
    changes = {"static_position_embeddings": True} if family == "Marian" else {}
    return getattr(transformers, f"{family}Config")(
        vocab_size=vocab_size, d_model=width, encoder_layers=layers[0], decoder_layers=layers[1],
        encoder_attention_heads=heads[0], decoder_attention_heads=heads[1], encoder_ffn_dim=rng.choice(SIZES),
        decoder_ffn_dim=rng.choice(SIZES), max_position_embeddings=64, scale_embedding=rng.random() < 0.5,
        activation_function=rng.choice(["gelu", "relu", "swish"]), decoder_start_token_id=2, forced_eos_token_id=None,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, forced_bos_token_id=None, **changes,
    )  # fmt: skip


def encoder(rng: Random) -> Any:
    """A configuration of a model that only reads."""
    family, heads = rng.choice(["Bert", "DistilBert", "Roberta"]), rng.randint(1, 4)
    vocab_size, layers, activation = rng.randint(20, 60), rng.randint(1, 3), rng.choice(["gelu", "relu"])
    width, inner = heads * rng.choice(SIZES), rng.choice(SIZES)
    if family == "DistilBert":
        return transformers.DistilBertConfig(
            vocab_size=vocab_size, dim=width, n_layers=layers, n_heads=heads, hidden_dim=inner, activation=activation,
            max_position_embeddings=64, sinusoidal_pos_embds=rng.random() < 0.3,
        )  # fmt: skip
    return getattr(transformers, f"{family}Config")(
        vocab_size=vocab_size, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=inner, hidden_act=activation, max_position_embeddings=64,
        type_vocab_size=rng.randint(1, 3), layer_norm_eps=rng.choice([1e-12, 1e-3]), pad_token_id=rng.choice([0, 1]),
    )  # fmt: skip


def reference_of(config: Any, seed: int) -> Any:
    name = type(config).__name__.removesuffix("Config")
    if name.lower().endswith("bert") or name == "Roberta":
        name = f"{name}Model"
    elif name == "Marian":
        name = "MarianMTModel"
    elif config.is_encoder_decoder:
        name = f"{name}ForConditionalGeneration"
    else:
        name = "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, name)._from_config(config, attn_implementation="eager")
        return randomized(model, STD).requires_grad_(False)


def bundle_of(reference: Any, folder: Path) -> Path:
    """With the artifacts onnx and ort-cpu-fp32."""
    export_module(load_checkpoint(saved(reference, folder / "checkpoint")), folder / "bundle")
    optimize_bundle(folder / "bundle", "ort-cpu", "fp32")
    return folder / "bundle"


def log_probs(reference: Any, source: Sequence[int], target: Sequence[int]) -> Any:
    """Of the tokens of a target, given a prompt or a source: (target_len)."""
    if reference.config.is_encoder_decoder:
        given = [reference.config.decoder_start_token_id, *target[:-1]]
        logits = reference(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([given])).logits[0]
    else:
        logits = reference(input_ids=torch.tensor([[*source, *target[:-1]]])).logits[0, len(source) - 1 :]
    return logits.log_softmax(-1)[range(len(target)), target].numpy()


def greedy(reference: Any, source: Sequence[int]) -> tuple[list[int], float]:
    """The likeliest text of NEW_TOKENS tokens that has no end, and by how much its closest choice was one."""
    ids, margins = list[int](), list[float]()
    for _ in range(NEW_TOKENS):
        if reference.config.is_encoder_decoder:
            given = torch.tensor([[reference.config.decoder_start_token_id, *ids]])
            logits = reference(input_ids=torch.tensor([source]), decoder_input_ids=given).logits[0, -1]
        else:
            logits = reference(input_ids=torch.tensor([[*source, *ids]])).logits[0, -1]
        logits[reference.config.eos_token_id] = -torch.inf
        best = logits.topk(2)
        ids.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
    return ids, min(margins)


@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("kind", [decoder, encoder_decoder])
def test_a_random_configuration_gives_what_transformers_gives(tmp_path: Path, kind: Any, number: int) -> None:
    rng = Random(number)
    config = kind(rng)
    reference = reference_of(config, number)
    bundle = bundle_of(reference, tmp_path)
    sources: Rows = [[rng.randrange(3, config.vocab_size) for _ in range(rng.randint(1, 9))] for _ in range(3)]
    targets: Rows = [[rng.randrange(3, config.vocab_size) for _ in range(rng.randint(1, 6))] for _ in sources]
    for artifact in ("onnx", "ort-cpu-fp32"):
        compare(load(bundle, artifact, threads=1), reference, sources, targets)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_random_encoder_gives_what_transformers_gives(tmp_path: Path, number: int) -> None:
    rng = Random(number)
    config = encoder(rng)
    reference = reference_of(config, number)
    bundle = bundle_of(reference, tmp_path)
    rows: Rows = [[rng.randrange(3, config.vocab_size) for _ in range(rng.randint(1, 9))] for _ in range(3)]
    for artifact in ("onnx", "ort-cpu-fp32"):
        found = load_encoder(bundle, artifact, threads=1).hidden_states(rows)
        for states, row in zip(found, rows, strict=True):
            expected = reference(input_ids=torch.tensor([row])).last_hidden_state[0].numpy()
            np.testing.assert_allclose(states, expected, rtol=0, atol=1e-4 * max(1.0, float(np.abs(expected).max())))


def compare(model: Model, reference: Any, sources: Rows, targets: Rows) -> None:
    found = model.score(sources, targets)
    for score, source, target in zip(found, sources, targets, strict=True):
        expected = log_probs(reference, source, target)
        atol = 1e-4 * max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(score.token_log_probs[: len(target)], expected, rtol=0, atol=atol)
    texts = model.generate(sources, GenerationConfig(min_new_tokens=NEW_TOKENS, max_new_tokens=NEW_TOKENS))
    for text, source in zip(texts, sources, strict=True):
        wanted, margin = greedy(reference, source)
        assert margin < 1e-3 or list(text.token_ids) == wanted
