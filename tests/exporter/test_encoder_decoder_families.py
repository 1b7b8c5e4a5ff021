"""Marian, BART, mBART, T5 and mT5 as graphs: fused operators, and nothing computed twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from edgeformer.exporter.onnx_graphs import export_graphs
from edgeformer.models.checkpoint import load_checkpoint

from ..models.encoder_decoder_families import saved

BART: dict[str, Any] = {
    "vocab_size": 29, "d_model": 20, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 5,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 28, "max_position_embeddings": 40,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
T5: dict[str, Any] = {
    "vocab_size": 29, "d_model": 20, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 5,
    "decoder_start_token_id": 0, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 7,
}  # fmt: skip
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31}
FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "bart": lambda: BartForConditionalGeneration(BartConfig(**BART)),
    "mbart": lambda: MBartForConditionalGeneration(MBartConfig(**BART)),
    "marian": lambda: MarianMTModel(MarianConfig(**BART, **TWO_VOCABULARIES)),
    "t5": lambda: T5ForConditionalGeneration(T5Config(**T5)),
    "mt5": lambda: MT5ForConditionalGeneration(MT5Config(**T5)),
}
# What fused operators are made of, and the logarithms of T5's buckets, which are computed once.
NEVER = {"Softmax", "Pow", "ReduceMean", "Erf", "ScatterND", "Log"}


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(FAMILIES[request.param](), tmp_path_factory.mktemp(request.param))


def test_attention_norms_and_caches_are_one_operator_each(checkpoint: Path) -> None:
    model = load_checkpoint(checkpoint)
    counts = {role: Counter(node.op_type for node in graph.graph) for role, graph in export_graphs(model).items()}
    assert (counts["encoder"]["Attention"], counts["decoder"]["Attention"]) == (2, 6)
    assert counts["decoder"]["TensorScatter"] == 6
    assert not NEVER & (counts["encoder"].keys() | counts["decoder"].keys())
