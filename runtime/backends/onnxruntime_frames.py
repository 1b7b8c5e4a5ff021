"""The buffers of one step of the graphs that were rewritten for ONNX Runtime, and where its tokens stand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime import names
from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.backends.onnxruntime_rotation import Tables
from edgeformer.runtime.backends.onnxruntime_sessions import Binding

if TYPE_CHECKING:
    import onnxruntime

    from edgeformer.runtime.backends.onnxruntime_steps import GraphExecutor, Held

Buffers = Sequence["onnxruntime.OrtValue"]  # keys and values of each layer, on the host or on a device


class Spares:
    """Buffers that were used and can be used again: making and binding them anew costs as much as a step.

    Safe in threads. What was kept longest goes first where they become too many or too large.
    """

    MOST = 128
    MOST_BYTES = 2**25

    def __init__(self) -> None:
        self.kept: OrderedDict[Hashable, list[Any]] = OrderedDict()
        self.count = self.nbytes = 0
        self.lock = threading.Lock()

    def take(self, key: Hashable) -> Any:
        """A buffer that was kept under this key, or None."""
        with self.lock:
            return self.pop(key) if key in self.kept else None

    def keep(self, key: Hashable, buffer: Any) -> None:
        """Keep a buffer, which says its `nbytes`, unless it alone is too large."""
        if buffer.nbytes > self.MOST_BYTES:
            return
        with self.lock:
            self.kept.setdefault(key, []).append(buffer)
            self.kept.move_to_end(key)
            self.count, self.nbytes = self.count + 1, self.nbytes + buffer.nbytes
            while self.count > self.MOST or self.nbytes > self.MOST_BYTES:
                self.pop(next(iter(self.kept)))

    def pop(self, key: Hashable) -> Any:
        buffers = self.kept[key]
        buffer = buffers.pop()
        if not buffers:
            del self.kept[key]
        self.count, self.nbytes = self.count - 1, self.nbytes - buffer.nbytes
        return buffer


class Frame:
    """The buffers of a step of one shape, bound once; caches, sources and tables are bound when they change."""

    def __init__(self, executor: GraphExecutor, shape: tuple[int, int, int, int]) -> None:
        sizes = self.sizes = executor.sizes
        self.shape = shape
        batch, sources, q_len, wanted = shape
        width = sizes.num_heads * sizes.head_dim
        self.ids, self.positions = np.empty((batch, q_len), np.int64), np.empty((batch, q_len), np.int64)
        self.columns, self.q_len = np.arange(q_len), np.array(q_len)
        self.logits_at, self.wants_last_column = np.empty((batch, wanted), np.int64), False
        # A single new token of a row stands where its cache ends.
        self.cache_lengths = self.positions[:, 0] if q_len == 1 else np.empty(batch, np.int64)
        self.last_positions = np.empty(batch, np.int32)
        self.total_length, self.source_lengths = np.empty(1, np.int32), np.empty(sources, np.int64)
        self.logits = np.empty((batch, wanted, sizes.vocab_size), np.float32)
        self.nbytes = self.logits.nbytes
        self.caches: Buffers | None = None
        self.encoded: Buffers | None = None
        self.tables: Tables | None = None
        self.sources_of: Ints | None = None  # whose lengths `source_lengths` are a copy of
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

    def attach(self, held: Held) -> None:
        """Bind what these rows hold, as far as it is not what is bound already."""
        if self.caches is not held.caches:
            self.attach_caches(held.caches, held.executor.tables(held.capacity))
        if self.encoded is not held.encoded:
            self.binding.inputs(dict(zip(names.encoded_names(self.sizes), held.encoded, strict=True)))
            self.encoded = held.encoded
        if self.sources_of is not held.source_lengths:
            self.source_lengths[...] = self.sources_of = held.source_lengths

    def attach_caches(self, caches: Buffers, tables: Tables) -> None:
        self.binding.inputs(dict(zip(names.past_names(self.sizes), caches, strict=True)))
        self.binding.outputs(dict(zip(names.present_names(self.sizes), caches, strict=True)))
        self.caches = caches
        if self.tables is not tables:
            self.binding.inputs(tables)
            self.tables = tables

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
            self.last_positions[...] = cache_lengths
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
