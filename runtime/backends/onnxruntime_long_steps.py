"""Steps of many tokens, in the parts that kernels take and memory holds.

GroupQueryAttention takes several new tokens a row over empty caches, or in a batch of one. So a batch over caches with
something in them goes row by row or token by token, whichever makes fewer runs. What is long goes in chunks: however
long a prompt is, activations and scores are those of a chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeformer.runtime.backends import Floats, Ints

if TYPE_CHECKING:
    from edgeformer.runtime.backends.onnxruntime_steps import Held, SteppingRows

# Tokens of a run: enough to keep the cores busy, and no more, since a kernel computes the scores that it masks as well,
# which parts do not have of what is behind them.
CHUNK = 256
LEAST_CHUNK = 16
SCORES = 1 << 26  # that a kernel may hold at once; the newest hold far fewer
FEW = 64  # tokens a row that do not keep the cores busy
SHARE = 0.85  # of a batch's tokens that should be real: padding costs as much as text


def long_step(rows: SteppingRows, input_ids: Ints, lengths: Ints | None, logits_at: Ints | None) -> Floats | None:
    """The logits of a step of several tokens, where it is made in parts; None where one run does."""
    batch, q_len = input_ids.shape
    size = chunk_size(rows)
    reals = np.full(batch, q_len, np.int64) if lengths is None else lengths
    at = (reals - 1)[:, None] if logits_at is None else logits_at
    if batch == 1 or not rows.executor.artifact.long_steps_need_empty_caches:
        return in_chunks(rows, input_ids, reals, at, size) if q_len > size else None
    if rows.longest == 0:
        tokens = batch * q_len
        worth_it = reals.sum() < SHARE * tokens or tokens > 4 * CHUNK
        apart = worth_it and reals.mean() >= FEW and rows.comes_apart
        return row_by_row(rows, input_ids, reals, at, size) if apart else None
    if rows.comes_apart and batch < q_len:
        return row_by_row(rows, input_ids, reals, at, size)
    return in_chunks(rows, input_ids, reals, at, 1)


def chunk_size(rows: SteppingRows) -> int:
    seen = max(rows.capacity, int(rows.source_lengths.max(initial=0)))
    scores = len(rows.cache_lengths) * rows.executor.sizes.num_heads * seen  # of one token a row
    return max(LEAST_CHUNK, min(CHUNK, SCORES // scores))


def in_chunks(held: Held, input_ids: Ints, lengths: Ints, at: Ints, size: int) -> Floats:
    """Columns of a step one part after the other.

    Args:
        input_ids: (batch, q_len).
        lengths: (batch,), how many of them are real.
        at: (batch, n), columns whose logits are wanted.
        size: columns of a part.

    Returns:
        (batch, n, vocab_size), with zeros where a column is wanted that there is not.
    """
    q_len, before = input_ids.shape[1], held.cache_lengths.copy()
    logits = np.zeros((*at.shape, held.executor.sizes.vocab_size), np.float32)
    for first in range(0, q_len, size):
        part = input_ids[:, first : first + size]
        inside = (at >= first) & (at < first + part.shape[1])  # (batch, n)
        wanted = np.flatnonzero(inside.any(axis=0))
        local = np.clip(at[:, wanted] - first, 0, part.shape[1] - 1)
        found = held.run(part, None, local if len(wanted) else None)
        row, column = np.nonzero(inside[:, wanted])
        logits[row, wanted[column]] = found[row, column]
    held.cache_lengths[...] = before + lengths
    held.longest = int(held.cache_lengths.max())
    return logits


def row_by_row(rows: SteppingRows, input_ids: Ints, lengths: Ints, at: Ints, size: int) -> Floats:
    """As `in_chunks`, each row by itself, without its padding."""
    found = []
    for row in range(len(input_ids)):
        this, length = slice(row, row + 1), lengths[row]
        found.append(in_chunks(rows.row(row), input_ids[this, :length], lengths[this], at[this], size))
    rows.longest = int(rows.cache_lengths.max())
    return np.concatenate(found)
