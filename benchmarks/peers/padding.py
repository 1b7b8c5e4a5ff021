"""Rows of unequal lengths for whatever has the interface of transformers' models: padded, with a mask.

Also models of optimum, whose `generate` is that of transformers. Runs in their environments.
"""

from __future__ import annotations

from typing import Any

import answering
import torch

PAD = 0
NUMBERS_OF_A_VECTOR = 32  # of the first token's, to compare by


def padded(rows: list[list[int]], left: bool) -> dict[str, torch.Tensor]:
    """input_ids and attention_mask, int64 (rows, longest)."""
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), PAD, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        at = slice(longest - len(row), longest) if left else slice(0, len(row))
        ids[i, at] = torch.tensor(row)
        mask[i, at] = 1
    return {"input_ids": ids, "attention_mask": mask}


class Decoder:
    """Greedy search by `generate`, with padding on the left, as its documentation asks."""

    def __init__(self, model: Any, options: dict[str, Any]) -> None:
        self.model, self.options = model, options

    def run(self, work: answering.Work) -> list[list[int]]:
        given = padded(work.inputs, left=True)
        found = self.model.generate(
            **given, max_new_tokens=work.new_tokens, num_beams=work.beams, do_sample=False, pad_token_id=PAD,
            **self.options,
        )  # fmt: skip
        new: list[list[int]] = found[:, given["input_ids"].shape[1] :].tolist()
        return new


class Encoder:
    """Hidden states of all rows, padded to the longest."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def run(self, work: answering.Work) -> list[list[float]]:
        with torch.inference_mode():
            states = self.model(**padded(work.inputs, left=False)).last_hidden_state
        vectors: list[list[float]] = states[:, 0, :NUMBERS_OF_A_VECTOR].tolist()
        return vectors
