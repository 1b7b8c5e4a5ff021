"""The buffers of one step of the graphs that were rewritten for ONNX Runtime, and where its tokens stand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime import names
from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.backends.onnxruntime_rotation import Tables
from edgeformer.runtime.backends.onnxruntime_sessions import Binding

if TYPE_CHECKING:
    from edgeformer.runtime.backends.onnxruntime_steps import GraphExecutor

Buffers = Iterable[Any]  # keys and values of each layer: arrays of the host, or ONNX Runtime's buffers on a device


class Spares:
    """Buffers that were used and can be used again, by shape: binding them anew costs as much as a step."""

    MOST = 4  # of each shape
    MOST_ROWS = 8  # larger batches cost more to keep than to bind anew
    MOST_SHAPES = 32  # a frame holds on to the caches and sources of its last step

    def __init__(self) -> None:
        self.kept: dict[tuple[int, ...], list[Any]] = {}

    def take(self, shape: tuple[int, ...]) -> Any:
        """A buffer of this shape, or None. Safe in threads: list.pop and append are atomic."""
        try:
            return self.kept[shape].pop()
        except (KeyError, IndexError):
            return None

    def keep(self, shape: tuple[int, ...], buffer: Any) -> None:
        if shape not in self.kept and len(self.kept) >= self.MOST_SHAPES:
            self.kept.clear()
        kept = self.kept.setdefault(shape, [])
        if len(kept) < self.MOST:
            kept.append(buffer)


class Frame:
    """The buffers of a step of one shape, bound once; caches, sources and tables are bound when they change."""

    def __init__(self, executor: GraphExecutor, shape: tuple[int, int, int, int]) -> None:
        sizes = self.sizes = executor.sizes
        self.shape = shape
        batch, sources, q_len, wanted = shape
        width = sizes.num_heads * sizes.head_dim
        self.ids, self.positions = np.empty((batch, q_len), np.int64), np.empty((batch, q_len), np.int64)
        self.columns = np.arange(q_len)
        self.logits_at, self.wants_last_column = np.empty((batch, wanted), np.int64), False
        self.cache_lengths, self.last_positions = np.empty(batch, np.int64), np.empty(batch, np.int32)
        self.total_length, self.source_lengths = np.empty(1, np.int32), np.empty(sources, np.int64)
        self.logits = np.empty((batch, wanted, sizes.vocab_size), np.float32)
        self.caches: Buffers | None = None
        self.encoded: Buffers | None = None
        self.tables: Tables | None = None
        given: dict[str, NDArray[Any]] = {
            names.INPUT_IDS: self.ids,
            names.CACHE_LENGTHS: self.cache_lengths,
            names.LOGITS_AT: self.logits_at,
            names.SOURCE_LENGTHS: self.source_lengths,
            names.POSITIONS: self.positions,
            names.LAST_POSITIONS: self.last_positions,
            names.TOTAL_LENGTH: self.total_length,
            names.SOURCE_SHAPE: np.array([sources, batch // max(sources, 1) * q_len, width]),
            names.ROW_SHAPE: np.array([batch, q_len, width]),
        }
        self.binding = Binding(executor.decoder)
        self.given = {name: array for name, array in given.items() if name in executor.decoder_inputs}
        self.copied = executor.device != "cpu"  # a GPU gets what the arrays hold when they are bound
        self.binding.inputs(self.given)
        self.binding.outputs({names.LOGITS: self.logits})

    def attach(self, caches: Buffers, encoded: Buffers, source_lengths: Ints, tables: Tables) -> None:
        if self.caches is not caches:
            self.binding.inputs(dict(zip(names.past_names(self.sizes), caches, strict=True)))
            self.binding.outputs(dict(zip(names.present_names(self.sizes), caches, strict=True)))
            self.caches = caches
        if self.encoded is not encoded:
            self.binding.inputs(dict(zip(names.encoded_names(self.sizes), encoded, strict=True)))
            self.encoded = encoded
        if self.tables is not tables:
            self.binding.inputs(tables)
            self.tables = tables
        self.source_lengths[...] = source_lengths

    def choose(self, lengths: Ints | None, logits_at: Ints | None) -> None:
        """Which positions' logits are wanted: the last of each row's `lengths` where none are named."""
        if logits_at is None and lengths is None:
            if not self.wants_last_column:
                self.logits_at[...] = self.shape[2] - 1
            self.wants_last_column = True
            return
        self.wants_last_column = False
        if logits_at is not None:
            self.logits_at[...] = logits_at
        elif lengths is not None:
            self.logits_at[:, 0] = lengths - 1

    def place(self, cache_lengths: Ints, longest: int) -> None:
        """Where the new tokens stand."""
        q_len = self.shape[2]
        self.cache_lengths[...] = cache_lengths
        self.total_length[0] = longest + q_len
        if q_len == 1:
            self.positions[:, 0] = self.last_positions[...] = cache_lengths
            return
        np.add(cache_lengths[:, None], self.columns, out=self.positions)
        self.last_positions[...] = self.positions[:, -1]
        # A padded query may stand past the table of positions; its value is never used, but its index must exist.
        np.minimum(self.positions, self.sizes.max_positions - 1, out=self.positions)

    def run(self) -> Floats:
        """The logits, (batch, wanted, vocab_size), overwritten by the next step of this frame."""
        if self.copied:
            self.binding.inputs(self.given)
        self.binding.run()
        return self.logits
