"""Rows of caches that go on from other rows, in C where the library is there: see moving.h."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.native.functions import address_of, functions


def move_rows(caches: NDArray[Any], rows: NDArray[np.int64], length: int) -> None:
    """Let row i have what row rows[i] has had.

    Args:
        caches: (caches, rows, heads, capacity, head_dim), whose last two axes are in one piece.
        rows: (rows,), the old row of each.
        length: tokens of a row that count.

    Raises:
        MemoryError: there is none for a copy of the rows that move.
        IndexError: there is no such row.
    """
    library = functions()
    if library is None:
        (moved,) = (rows != np.arange(len(rows))).nonzero()
        if len(moved):
            written = caches[:, :, :, :length]
            written[:, moved] = written[:, rows[moved]]
        return
    count, batch, heads, _, _ = caches.shape
    cache_step, row_step, head_step, token_step, _ = caches.strides
    arguments = (count, cache_step, row_step, heads, head_step, length * token_step)
    wanted = np.ascontiguousarray(rows, np.int64)
    failed = library.edgeformer_move(address_of(caches), *arguments, address_of(wanted), batch)
    if failed == 1:
        raise MemoryError(f"no memory to move {batch} rows of {length} tokens")
    if failed:
        raise IndexError(f"rows {rows.tolist()} are to go on, of {batch}")
