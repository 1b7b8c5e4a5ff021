"""What an encoder's hidden states become: embeddings, classes of texts and of tokens, words for masks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.activations import FUNCTIONS
from edgeformer.models.configs.activations import Activation
from edgeformer.models.configs.sentence_encoders import Mode, Pooling
from edgeformer.models.steps import taken_at


def pooled(hidden: Tensor, lengths: Tensor, mode: Mode) -> Tensor:
    """One vector for each row, of its own tokens alone.

    Args:
        hidden: (batch, source_len, d_model).
        lengths: int64 (batch,), at least 1 each.
        mode: the first token's, or over all tokens the largest of each number, the mean, or the sum divided by the root
            of the length.

    Returns:
        (batch, d_model)
    """
    if mode == "first":
        return hidden[:, 0]
    exists = (torch.arange(hidden.shape[1], device=hidden.device)[None] < lengths[:, None])[:, :, None]
    if mode == "max":
        return hidden.masked_fill(~exists, -math.inf).amax(1)
    count = lengths[:, None].to(hidden.dtype)
    return hidden.masked_fill(~exists, 0.0).sum(1) / (count.sqrt() if mode == "mean-sqrt" else count)


def embedding(hidden: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """The poolings side by side (Reimers and Gurevych 2019, "Sentence-BERT"): (batch, len(modes) * d_model)."""
    vectors = torch.cat([pooled(hidden, lengths, mode) for mode in pooling.modes], dim=-1)
    return F.normalize(vectors) if pooling.normalize else vectors


class TextClasses(nn.Module):
    """Logits for a text, from the hidden state of its first token."""

    def __init__(self, d_model: int, num_labels: int, activation: Activation) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_model)
        self.outer = nn.Linear(d_model, num_labels)
        self.activation = FUNCTIONS[activation]

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, source_len, d_model) to (batch, num_labels)."""
        return self.outer(self.activation(self.inner(hidden[:, 0])))


class MaskedTokens(nn.Module):
    """Logits over the vocabulary at some positions."""

    def __init__(self, d_model: int, vocab_size: int, activation: Activation, norm_eps: float, tied: bool) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_model)
        self.activation = FUNCTIONS[activation]
        self.norm = nn.LayerNorm(d_model, eps=norm_eps)
        if tied:
            self.bias = nn.Parameter(torch.zeros(vocab_size))
        else:
            self.projection = nn.Linear(d_model, vocab_size)
        self.tied = tied

    def forward(self, hidden: Tensor, at: Tensor, embeddings: Tensor) -> Tensor:
        """Logits of (batch, source_len, d_model) at int64 (batch, n): (batch, n, vocab_size).

        Args:
            embeddings: (vocab_size, d_model), the projection where the two are tied.
        """
        x = self.norm(self.activation(self.inner(taken_at(hidden, at))))
        return F.linear(x, embeddings, self.bias) if self.tied else self.projection(x)
