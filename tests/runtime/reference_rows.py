"""Rows that transformers' own models compute, each step from the beginning: a search over them and `generate` must
agree, with no exporter, cache or backend in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from edgeformer.runtime.backends import Floats, Ints


class ReferenceRows:
    """Rows of a language model, or of an encoder-decoder where there are sources."""

    def __init__(self, model: Any, batch: int, sources: Sequence[Sequence[int]] = ()) -> None:
        self.model, self.sources = model, [list(source) for source in sources]
        self.texts: list[list[int]] = [[] for _ in range(batch)]

    @property
    def cache_lengths(self) -> Ints:
        return np.array([len(text) for text in self.texts], np.int64)

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        assert logits_at is None
        assert len(input_ids) == len(self.texts)
        many = np.full(len(input_ids), input_ids.shape[1]) if lengths is None else lengths
        for text, ids, length in zip(self.texts, input_ids.tolist(), many.tolist(), strict=True):
            text += ids[:length]
        ids, mask = padded(self.texts)
        with torch.inference_mode():
            if self.sources:
                source_ids, source_mask = padded(self.sources)
                given = {"input_ids": source_ids, "attention_mask": source_mask}
                logits = self.model(**given, decoder_input_ids=ids, decoder_attention_mask=mask).logits
            else:
                logits = self.model(ids, attention_mask=mask).logits
        last = logits[torch.arange(len(ids)), mask.sum(1) - 1]
        return np.array(last[:, None].numpy())

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        each = len(self.texts) // len(self.sources) if self.sources else 1
        owners = [self.sources[row // each] for row in rows.tolist()] if self.sources else []
        self.texts = [list(self.texts[row]) for row in rows.tolist()]
        self.sources = owners

    def close(self) -> None:
        pass


def padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows padded on the right, and a mask that is 1 where they are real."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
