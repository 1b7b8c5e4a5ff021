"""Golden samples of an encoder: what PyTorch gave, in as few numbers as tell whether an artifact agrees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from edgeformer.models.protocols import Encoder
from edgeformer.runtime import names
from edgeformer.runtime.encoder_records import TOKEN_TYPE_IDS, EncoderRecord, EncoderSample

MOST_COLUMNS = 64  # of a wide output, spread evenly
DIGITS = 8  # significant, of each number


def encoder_samples(
    model: Encoder, record: EncoderRecord, inputs: Sequence[Sequence[int]]
) -> tuple[EncoderSample, ...]:
    """What PyTorch gives for rows of ids; where there are token types, the second half of each is of another."""
    return tuple(encoder_sample(model, record, ids) for ids in inputs)


@torch.inference_mode()
def encoder_sample(model: Encoder, record: EncoderRecord, ids: Sequence[int]) -> EncoderSample:
    at_tokens = len(record.outputs()[record.output]) == 3
    positions = tuple(sorted({0, len(ids) // 2, len(ids) - 1})) if at_tokens else ()
    types = tuple(int(2 * i >= len(ids)) for i in range(len(ids))) if record.has_token_types else ()
    every = {
        names.INPUT_IDS: torch.tensor([ids]),
        names.SOURCE_LENGTHS: torch.tensor([len(ids)]),
        TOKEN_TYPE_IDS: torch.tensor([types], dtype=torch.long),
        names.LOGITS_AT: torch.tensor([positions or (0,)]),
    }
    output = model.encode(**{name: every[name] for name in record.inputs()})[record.output][0]
    rows = output[None] if not at_tokens else output if record.head == "masked-tokens" else output[list(positions)]
    columns = spread(record.width)
    return EncoderSample(tuple(ids), types, positions, columns, rounded(rows[:, list(columns)] if columns else rows))


def spread(width: int) -> tuple[int, ...]:
    """Columns that stand for all of a wide output; none where it is not wide."""
    return tuple(i * width // MOST_COLUMNS for i in range(MOST_COLUMNS)) if width > MOST_COLUMNS else ()


def rounded(rows: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(f"{value:.{DIGITS}g}") for value in row) for row in rows.tolist())
