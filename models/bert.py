"""BERT (Devlin et al. 2018), readable from top to bottom; RoBERTa and DistilBERT are built from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgeformer.models.activations import FUNCTIONS
from edgeformer.models.attention import MultiHeadAttention, source_mask
from edgeformer.models.configs.bert import BertConfig
from edgeformer.models.encoder_heads import MaskedTokens, TextClasses, embedding
from edgeformer.models.stored import Stored, renamed

Rules = Sequence[tuple[str, str]]

LAYER_RULES: Rules = (
    (r"^layers\.", "encoder.layer."),
    (r"attention\.(query|key|value)\.", r"attention.self.\1."),
    (r"attention\.output\.", "attention.output.dense."),
    (r"attention_norm", "attention.output.LayerNorm"),
    (r"inner", "intermediate.dense"),
    (r"outer", "output.dense"),
    (r"feed_forward_norm", "output.LayerNorm"),
)
EMBEDDING_RULES: Rules = (
    (r"^(word|position|token_type)_embeddings", r"embeddings.\1_embeddings"),
    (r"^norm", "embeddings.LayerNorm"),
)
OLDER_RULES: Rules = ((r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta"))


class Layer(nn.Module):
    """Attention and a feed-forward map, each behind its input and normalized with it."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.d_model, config.num_heads)
        self.attention_norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.feed_forward_norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.activation = FUNCTIONS[config.activation]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x, mask))
        return self.feed_forward_norm(x + self.outer(self.activation(self.inner(x))))


class Bert(nn.Module):
    """An encoder and its head."""

    base_prefix: ClassVar[str] = "bert."
    # Of the encoder's parameters behind base_prefix, and of each head's.
    rules: ClassVar[Rules] = (*LAYER_RULES, *EMBEDDING_RULES)
    head_rules: ClassVar[Rules] = (
        (r"^text_classes\.inner", "bert.pooler.dense"),
        (r"^text_classes\.outer", "classifier"),
        (r"^token_classes", "classifier"),
        (r"^masked_tokens\.inner", "cls.predictions.transform.dense"),
        (r"^masked_tokens\.norm", "cls.predictions.transform.LayerNorm"),
        (r"^masked_tokens\.projection", "cls.predictions.decoder"),
        (r"^masked_tokens\.bias", "cls.predictions.bias"),
    )
    # Of heads that were trained beside the encoder and are not this one, and copies of what is tied.
    ignored: ClassVar[tuple[str, ...]] = ("cls.", "bert.pooler.", "pooler.")
    head_activation: ClassVar[Any] = "tanh"

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        width, eps = config.d_model, config.norm_eps
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = nn.Embedding(config.position_rows, width)
        if config.token_types:
            self.token_type_embeddings = nn.Embedding(config.token_types, width)
        self.norm = nn.LayerNorm(width, eps=eps)
        # Any: iterating over an nn.ModuleList gives type checkers no more than Module
        self.layers: Any = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        if config.head == "sequence-classes":
            self.text_classes = TextClasses(width, len(config.labels), self.head_activation)
        elif config.head == "token-classes":
            self.token_classes = nn.Linear(width, len(config.labels))
        elif config.head == "masked-tokens":
            self.masked_tokens = MaskedTokens(width, config.vocab_size, config.head_activation, eps, config.tied)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Token, position and token type embeddings of int64 (batch, source_len): (batch, source_len, d_model)."""
        first = self.config.first_position
        rows = torch.arange(first, first + input_ids.shape[1], device=input_ids.device)
        # Padding may stand past the table; its value is never used, but its index must exist.
        x = self.word_embeddings(input_ids) + self.position_embeddings(rows.clamp(max=self.config.position_rows - 1))
        if token_type_ids is not None:
            x = x + self.token_type_embeddings(token_type_ids)
        elif self.config.token_types:
            x = x + self.token_type_embeddings.weight[0]
        return self.norm(x)

    def encode(
        self,
        input_ids: Tensor,
        source_lengths: Tensor,
        token_type_ids: Tensor | None = None,
        logits_at: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Read texts, as `edgeformer.models.protocols.Encoder` says."""
        source_len = input_ids.shape[1]
        x = self.embed(input_ids, token_type_ids)
        mask = source_mask(source_lengths, source_len, source_len)
        for layer in self.layers:
            x = layer(x, mask)
        return {"last_hidden_state": x, **self.read_out(x, source_lengths, logits_at)}

    def read_out(self, x: Tensor, source_lengths: Tensor, logits_at: Tensor | None) -> dict[str, Tensor]:
        """What the head makes of the hidden states."""
        pooling = self.config.output.pooling
        if pooling is not None:
            return {"sentence_embedding": embedding(x, source_lengths, pooling)}
        if self.config.head == "sequence-classes":
            return {"logits": self.text_classes(x)}
        if self.config.head == "token-classes":
            return {"logits": self.token_classes(x)}
        if self.config.head == "masked-tokens":
            return {"logits": self.masked_tokens(x, logits_at, self.word_embeddings.weight)}
        return {}

    def forward(
        self, input_ids: Tensor, source_lengths: Tensor, token_type_ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        """As `encode`, with logits at every position where the head fills masks."""
        at = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        return self.encode(input_ids, source_lengths, token_type_ids, at)

    def stored_as(self, name: str) -> Stored:
        """Where Hugging Face's checkpoints keep a parameter."""
        stored = renamed(name, self.head_rules)
        if stored == name:
            stored = self.base_prefix + renamed(name, self.rules)
        return Stored(stored, older=(renamed(stored, OLDER_RULES),))

    def is_ignored(self, name: str) -> bool:
        """Tensors that say nothing more."""
        return name.endswith("position_ids") or name.startswith(self.ignored)
