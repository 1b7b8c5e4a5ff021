"""Our Transformer's weights in Hugging Face's Marian, whose `generate` is the reference for what options mean.

Marian is the same architecture (post-norm, ReLU, scaled and tied embeddings) with other names; its table of positions,
sines before cosines, is overwritten by ours.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel

from edgeformer.models.transformer import Transformer

# Parts of a layer, ours and Marian's.
PARTS = {
    "cross_attention": "encoder_attn",
    "attention": "self_attn",
    "attention_residual.norm": "self_attn_layer_norm",
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feed_forward_residual.norm": "final_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}


def to_marian(model: Transformer) -> MarianMTModel:
    """Marian with the weights of a Transformer that is as the paper has it."""
    ours = model.config
    assert (ours.norm_placement, ours.positions, ours.norm_eps) == ("post", "sinusoidal", 1e-5)
    config = MarianConfig(
        vocab_size=ours.vocab_size,
        d_model=ours.d_model,
        encoder_layers=ours.num_encoder_layers,
        decoder_layers=ours.num_decoder_layers,
        encoder_attention_heads=ours.num_heads,
        decoder_attention_heads=ours.num_heads,
        encoder_ffn_dim=ours.d_ff,
        decoder_ffn_dim=ours.d_ff,
        activation_function=ours.activation,
        max_position_embeddings=ours.max_positions,
        scale_embedding=ours.scale_embeddings,
        pad_token_id=ours.pad_token_id,
        eos_token_id=ours.eos_token_id,
        decoder_start_token_id=ours.bos_token_id,
        forced_eos_token_id=None,
    )
    marian = MarianMTModel(config).eval()
    tensors = {"model.shared.weight": model.embedding.weight, "final_logits_bias": torch.zeros(1, ours.vocab_size)}
    for side in ("encoder", "decoder"):
        tensors[f"model.{side}.embed_positions.weight"] = model.positions
        for i, layer in enumerate(getattr(model, f"{side}_layers")):
            for name, tensor in layer.state_dict().items():
                tensors[f"model.{side}.layers.{i}.{renamed(name)}"] = tensor
    missing, unexpected = marian.load_state_dict(tensors, strict=False)
    tied = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"}
    assert set(missing) <= tied, set(missing) - tied
    assert not unexpected, unexpected
    return marian


def renamed(name: str) -> str:
    """`cross_attention.query.weight` -> `encoder_attn.q_proj.weight`."""
    part, kind = name.rsplit(".", 1)
    if part in PARTS:
        return f"{PARTS[part]}.{kind}"
    module, projection = part.rsplit(".", 1)
    return f"{PARTS[module]}.{PROJECTIONS[projection]}.{kind}"


def generated(marian: MarianMTModel, source: list[int], **options: Any) -> list[tuple[tuple[int, ...], float | None]]:
    """Ids, without what begins and ends them, and score of each sequence that Marian returns, in its order."""
    found = marian.generate(
        torch.tensor([source]),
        attention_mask=torch.ones(1, len(source), dtype=torch.long),
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    special = {marian.config.pad_token_id, marian.config.eos_token_id}
    ids = [tuple(row[1:]) for row in found.sequences.tolist()]
    ends = [next((at for at, token in enumerate(row) if token in special), len(row)) for row in ids]
    scores = found.sequences_scores.tolist() if found.get("sequences_scores") is not None else [None] * len(ids)
    return [(row[:end], score) for row, end, score in zip(ids, ends, scores, strict=True)]
