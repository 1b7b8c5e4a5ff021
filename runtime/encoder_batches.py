"""Inputs that are computed together, so that little is spent on padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Ints
from edgeformer.runtime.encoder_records import TOKEN_TYPE_IDS, EncoderRecord
from edgeformer.runtime.encoder_text import EncodedInput

# Inputs are read in batches in which the shortest is at least this share of the longest: padding costs as much as text.
LIKE_LENGTH = 0.85
MOST_TOKENS = 8192  # of a batch; more only take memory


def like_lengths(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Indices of rows whose lengths are near each other, batch by batch, the longest first."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        longest = lengths[batch[0]] if batch else 0
        full = len(batch) == batch_size or (len(batch) + 1) * longest > MOST_TOKENS
        if batch and (full or lengths[i] < LIKE_LENGTH * longest):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]], fill: int) -> Ints:
    """Rows as one right-padded int64 array (rows, longest)."""
    array = np.full((len(rows), max(map(len, rows))), fill, np.int64)
    for line, row in zip(array, rows, strict=True):
        line[: len(row)] = row
    return array


def graph_inputs(
    record: EncoderRecord, rows: Sequence[EncodedInput], wanted: Sequence[Sequence[int]], pad: int
) -> dict[str, Ints]:
    """What an encoder's graph takes.

    Args:
        rows: the inputs.
        wanted: positions of each row whose words are wanted, at least one each.
        pad: the id that fills up shorter rows.
    """
    every = {
        names.INPUT_IDS: padded([row.ids for row in rows], pad),
        names.SOURCE_LENGTHS: np.array([len(row.ids) for row in rows], np.int64),
        TOKEN_TYPE_IDS: padded([row.type_ids for row in rows], 0),
        names.LOGITS_AT: padded(wanted, 0),
    }
    return {name: every[name] for name in record.inputs()}
