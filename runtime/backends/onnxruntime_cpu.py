"""ONNX Runtime on the CPU: buffers bound once and written in place, so that a step is one call into its session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Floats, Ints, older
from edgeformer.runtime.backends.onnxruntime_encoder import OnnxRuntimeEncoder
from edgeformer.runtime.backends.onnxruntime_frames import Spares
from edgeformer.runtime.backends.onnxruntime_sessions import CPU, Binding, Sessions, installed_version
from edgeformer.runtime.backends.onnxruntime_steps import GraphExecutor, Held, SteppingRows
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.encoder_records import EncoderRecord

FIRST_CAPACITY = 8
# Sources are read in groups in which the shortest is at least this share of the longest: padding costs as much as text.
LIKE_LENGTH = 0.85


class OnnxRuntimeCpu:
    """Backend `ort-cpu`."""

    name = "ort-cpu"

    def unavailable(self, artifact: Artifact | None = None) -> str | None:
        if not find_spec("onnxruntime"):
            return "onnxruntime is not installed; pip install 'edgeformer[cpu]'"
        least = artifact.needs.get("onnxruntime") if artifact else None
        installed = installed_version()
        if least and installed and older(installed, least):
            return f"it needs onnxruntime {least}, {installed} is installed; pip install 'onnxruntime>={least}'"
        return None

    def load(self, bundle: Bundle, artifact: Artifact, threads: int | None) -> OnnxRuntimeExecutor:
        return OnnxRuntimeExecutor(bundle, artifact, threads)

    def load_encoder(
        self, bundle: Bundle, artifact: Artifact, record: EncoderRecord, threads: int | None
    ) -> OnnxRuntimeEncoder:
        return OnnxRuntimeEncoder(bundle, artifact, record, threads)


class OnnxRuntimeExecutor(GraphExecutor):
    """The graphs of an artifact on the CPU."""

    def __init__(self, bundle: Bundle, artifact: Artifact, threads: int | None) -> None:
        super().__init__(bundle, artifact, Sessions(bundle, artifact, threads, [CPU]), "cpu")

    def start(self, sources: Sequence[Sequence[int]], capacity: int) -> OnnxRuntimeRows:
        lengths = np.array([len(source) for source in sources], np.int64)
        groups = list(like_lengths(lengths))
        if len(groups) == 1:
            return OnnxRuntimeRows(self, len(sources), capacity, lengths, self.encode(sources, lengths))
        sizes = self.sizes
        shape = (len(sources), sizes.num_heads, int(lengths.max()), sizes.head_dim)
        encoded = [np.zeros(shape, self.dtype) for _ in range(2 * sizes.num_layers)]
        for group in groups:
            parts = self.encode([sources[i] for i in group], lengths[group])
            for whole, part in zip(encoded, parts, strict=True):
                whole[group, :, : part.shape[2]] = part
        return OnnxRuntimeRows(self, len(sources), capacity, lengths, encoded)

    def start_empty(self, batch: int, capacity: int) -> OnnxRuntimeRows:
        return OnnxRuntimeRows(self, batch, capacity, np.empty(0, np.int64), [])

    def encode(self, sources: Sequence[Sequence[int]], lengths: Ints) -> list[Floats]:
        """Keys and values of each layer, (batch, num_heads, longest source, head_dim) each."""
        ids = self.padded(sources, lengths)
        sizes, (batch, source_len) = self.sizes, ids.shape
        shape = (batch, sizes.num_heads, source_len, sizes.head_dim)
        encoded: list[Floats] = [np.empty(shape, self.dtype) for _ in range(2 * sizes.num_layers)]
        binding = Binding(self.sessions["encoder"])
        binding.inputs({names.INPUT_IDS: ids, names.SOURCE_LENGTHS: lengths})
        binding.outputs(dict(zip(names.encoded_names(sizes), encoded, strict=True)))
        binding.run()
        return encoded


def like_lengths(lengths: Ints) -> Iterator[Ints]:
    """Indices of rows whose lengths are near each other, group by group."""
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        rest = lengths[order[first:]]
        count = int(np.searchsorted(-rest, -LIKE_LENGTH * rest[0], side="right"))
        yield order[first : first + count]
        first += count


class OnnxRuntimeRows(SteppingRows):
    """Rows whose caches are arrays of the host.

    Caches begin small and double as rows grow, since attention may cost as much as the cache is long. Nothing is bound
    or allocated in a step whose shapes are those of the step before.
    """

    caches: Floats
    encoded: list[Floats]
    comes_apart = True

    def __init__(
        self, executor: OnnxRuntimeExecutor, batch: int, limit: int, source_lengths: Ints, encoded: list[Floats]
    ) -> None:
        super().__init__(executor, batch, source_lengths, limit, min(limit, FIRST_CAPACITY))
        self.encoded = encoded
        # Rows are copied from one store to the other when some leave; the caches in use are the first rows of a store.
        self.store = self.caches = self.take_caches(batch, self.capacity)
        self.other: Floats | None = None

    def take_caches(self, batch: int, capacity: int) -> Floats:
        """All caches in one array, (key and value of each layer, batch, num_kv_heads, capacity, head_dim).

        What a spare one holds from before lies behind every row's length, and is finite, so it is never seen.
        """
        sizes = self.executor.sizes
        shape = (2 * sizes.num_layers, batch, sizes.num_kv_heads, capacity, sizes.head_dim)
        spare: Floats | None = self.executor.spares.take(shape)
        return np.zeros(shape, self.executor.dtype) if spare is None else spare

    def give_caches(self) -> None:
        for store in (self.store, self.other):
            if store is not None and store.shape[1] <= Spares.MOST_ROWS:
                self.executor.spares.keep(store.shape, store)
        self.other = None

    def reserve(self, length: int) -> None:
        """Make room for rows of this many tokens."""
        batch, capacity = self.caches.shape[1], self.capacity
        self.capacity = self.next_capacity(length)
        grown = self.take_caches(batch, self.capacity)
        grown[:, :, :, :capacity] = self.caches
        self.give_caches()
        self.store = self.caches = grown

    def row(self, at: int) -> Held:
        first = at * len(self.source_lengths) // len(self.cache_lengths)  # a source may serve several rows
        source = slice(first, first + 1)
        held = Held(self.executor, self.cache_lengths[at : at + 1], self.source_lengths[source], self.capacity)
        held.caches = list(self.caches[:, at : at + 1])
        held.encoded = [array[source] for array in self.encoded]
        return held

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        _, batch, _, capacity, _ = self.caches.shape
        if not self.executor.artifact.shared_sources and (sources is not None or len(rows) != batch):
            sources = rows  # each row has a copy of its source, and takes it along
        if sources is not None and self.executor.sizes.has_source:
            self.encoded = [array[sources] for array in self.encoded]
            self.source_lengths = self.source_lengths[sources]
        if len(rows) != batch:
            if self.other is None or self.other.shape[1] < len(rows):
                self.other = self.take_caches(len(rows), capacity)
            kept = self.other[:, : len(rows)]
            for old, new in zip(self.caches, kept, strict=True):
                old.take(rows, axis=0, out=new, mode="clip")
            self.store, self.other, self.caches = self.other, self.store, kept
            self.cache_lengths = self.cache_lengths[rows]
            self.longest = int(self.cache_lengths.max())
            return
        (moved,) = np.nonzero(rows != np.arange(batch))
        if len(moved):
            origin = rows[moved]
            written = self.caches[:, :, :, : self.longest]
            written[:, moved] = written[:, origin]
            self.cache_lengths[moved] = self.cache_lengths[origin]
            self.longest = int(self.cache_lengths.max())
