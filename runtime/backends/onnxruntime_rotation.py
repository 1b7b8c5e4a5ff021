"""The tables that turn queries and keys by their positions, as long as the caches that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime import names

if TYPE_CHECKING:
    import onnxruntime

Tables = dict[str, NDArray[Any]]
FEWEST_ROWS = 64


class RotationTables:
    """Cosines and sines of all positions that caches have had room for so far.

    Args:
        session: of the graph that computes them.
        last: the model's last position. Caches may have room for padding behind it, which may be turned by any angle.
        dtype: what the step graph takes.
    """

    def __init__(self, session: onnxruntime.InferenceSession, last: int, dtype: type[np.floating[Any]]) -> None:
        self.session, self.last, self.dtype = session, last, dtype
        self.made: tuple[int, Tables] = (0, {})

    def reaching(self, rows: int) -> Tables:
        """Tables of at least so many rows: the same ones until more are needed. Safe in threads."""
        had, tables = self.made
        if rows <= had:
            return tables
        rows = max(rows, 2 * had, FEWEST_ROWS)
        positions = np.minimum(np.arange(rows), self.last)[None]
        found = self.session.run(None, {names.POSITIONS: positions})
        called = [value.name for value in self.session.get_outputs()]
        tables = {name: table.astype(self.dtype, copy=False) for name, table in zip(called, found, strict=True)}
        self.made = rows, tables
        return tables
