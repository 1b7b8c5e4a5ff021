"""ONNX Runtime on the CPU: buffers bound once and written in place, so that a step is one call into its session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Ints, older
from edgeformer.runtime.backends.onnxruntime_encoder import OnnxRuntimeEncoder
from edgeformer.runtime.backends.onnxruntime_long_sources import EncoderSessions
from edgeformer.runtime.backends.onnxruntime_sessions import CPU, Binding, Block, Sessions, installed_version
from edgeformer.runtime.backends.onnxruntime_steps import GraphExecutor, Held, SteppingRows
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.native.moving import move_rows

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

    def load(self, bundle: Bundle, artifact: Artifact, cores: Cores) -> OnnxRuntimeExecutor:
        return OnnxRuntimeExecutor(bundle, artifact, cores)

    def load_encoder(
        self, bundle: Bundle, artifact: Artifact, record: EncoderRecord, cores: Cores
    ) -> OnnxRuntimeEncoder:
        return OnnxRuntimeEncoder(bundle, artifact, record, cores)


class OnnxRuntimeExecutor(GraphExecutor):
    """The graphs of an artifact on the CPU."""

    def __init__(self, bundle: Bundle, artifact: Artifact, cores: Cores) -> None:
        sessions = Sessions(bundle, artifact, cores, [CPU])
        super().__init__(bundle, artifact, sessions, "cpu")
        if self.sizes.has_source:
            self.encoders = EncoderSessions(sessions, self.sessions["encoder"], self.sizes.num_heads)

    def start(self, sources: Sequence[Sequence[int]], capacity: int) -> OnnxRuntimeRows:
        each = [len(source) for source in sources]
        lengths = np.array(each, np.int64)
        if min(each) >= LIKE_LENGTH * max(each):
            return OnnxRuntimeRows(self, len(sources), capacity, lengths, self.read(sources, lengths))
        groups, sizes = like_lengths(lengths), self.sizes
        shape = (2 * sizes.num_layers, len(sources), sizes.num_heads, int(lengths.max()), sizes.head_dim)
        encoded = np.zeros(shape, self.dtype)
        for group in groups:
            reading = self.read([sources[i] for i in group], lengths[group])
            part = reading.encoded.array
            encoded[:, group, :, : part.shape[3]] = part
            self.spares.keep(reading.shape, reading)
        return OnnxRuntimeRows(self, len(sources), capacity, lengths, Block(encoded))

    def start_empty(self, batch: int, capacity: int) -> OnnxRuntimeRows:
        return OnnxRuntimeRows(self, batch, capacity, np.empty(0, np.int64), None)

    def read(self, sources: Sequence[Sequence[int]], lengths: Ints) -> Reading:
        """Let the encoder read sources of like lengths."""
        shape = (len(sources), max(map(len, sources)))
        reading: Reading = self.spares.take(shape) or Reading(self, shape)
        reading.run(sources, lengths)
        return reading


class Reading:
    """The encoder's run over sources of one shape, bound once, and what it gave.

    Attributes:
        shape: (batch, longest source).
        encoded: keys and values of each layer, (batch, num_heads, longest source, head_dim) each.
    """

    def __init__(self, executor: OnnxRuntimeExecutor, shape: tuple[int, int]) -> None:
        sizes, self.shape, self.pad = executor.sizes, shape, executor.pad
        batch, source_len = shape
        self.ids, self.lengths = np.empty(shape, np.int64), np.empty(batch, np.int64)
        whole = (2 * sizes.num_layers, batch, sizes.num_heads, source_len, sizes.head_dim)
        self.encoded = Block(np.empty(whole, executor.dtype))
        self.nbytes = self.encoded.nbytes
        session, more = executor.encoders.of(batch, source_len)
        self.binding = Binding(session)
        self.binding.inputs({names.INPUT_IDS: self.ids, names.SOURCE_LENGTHS: self.lengths, **more})
        self.binding.outputs(dict(zip(names.encoded_names(sizes), self.encoded.values, strict=True)))

    def run(self, sources: Sequence[Sequence[int]], lengths: Ints) -> None:
        source_len = self.shape[1]
        self.ids[...] = [[*source, *[self.pad] * (source_len - len(source))] for source in sources]
        self.lengths[...] = lengths
        self.binding.run()


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

    Args:
        read: of the sources: a reading, given back at the end, or copies of several; None where there are no sources.

    Attributes:
        block: the caches in use, (key and value of each layer, batch, num_kv_heads, capacity, head_dim): the first rows
            of `store`.
        sources: the keys and values of the sources, as the encoder gave them.
    """

    comes_apart = True

    def __init__(
        self,
        executor: OnnxRuntimeExecutor,
        batch: int,
        limit: int,
        source_lengths: Ints,
        read: Reading | Block | None,
    ) -> None:
        super().__init__(executor, batch, source_lengths, limit, min(limit, FIRST_CAPACITY))
        self.reading = read if isinstance(read, Reading) else None
        self.sources = read.encoded if isinstance(read, Reading) else read
        self.encoded = self.sources.values if self.sources is not None else []
        # Rows are copied from one store to the other when some leave.
        self.store = self.take_caches(batch, self.capacity)
        self.use(self.store)
        self.other: Block | None = None

    @property
    def nbytes(self) -> int:
        return self.store.nbytes

    def use(self, block: Block) -> None:
        self.block, self.caches = block, block.values

    def take_caches(self, batch: int, capacity: int) -> Block:
        """All caches in one block.

        What a spare one holds from before lies behind every row's length, and is finite, so it is never seen.
        """
        sizes = self.executor.sizes
        shape = (2 * sizes.num_layers, batch, sizes.num_kv_heads, capacity, sizes.head_dim)
        spare: Block | None = self.executor.spares.take(shape)
        return Block(np.zeros(shape, self.executor.dtype)) if spare is None else spare

    def give_caches(self) -> None:
        for store in (self.store, self.other):
            if store is not None:
                self.executor.spares.keep(store.array.shape, store)
        self.other = None

    def close(self) -> None:
        super().close()
        if self.reading is not None:
            self.executor.spares.keep(self.reading.shape, self.reading)
            self.reading = None

    def reserve(self, length: int) -> None:
        """Make room for rows of this many tokens."""
        held, capacity = self.block.array, self.next_capacity(length)
        grown = self.take_caches(held.shape[1], capacity)  # where this fails, the rows are as they were
        grown.array[:, :, :, : self.capacity] = held
        self.capacity = capacity
        self.give_caches()
        self.store = grown
        self.use(grown)

    def row(self, at: int) -> Held:
        first = at * len(self.source_lengths) // len(self.cache_lengths)  # a source may serve several rows
        source = slice(first, first + 1)
        lengths = self.cache_lengths[at : at + 1]
        held = Held(self.executor, lengths, self.source_lengths[source], self.capacity, int(lengths[0]))
        held.caches = Block(self.block.array[:, at : at + 1]).values
        held.encoded = Block(self.sources.array[:, source]).values if self.sources is not None else []
        return held

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        _, batch, _, capacity, _ = self.block.array.shape
        if not self.executor.artifact.shared_sources and (sources is not None or len(rows) != batch):
            sources = rows  # each row has a copy of its source, and takes it along
        if sources is not None and self.sources is not None:
            self.sources = Block(self.sources.array.take(sources, axis=1))
            self.encoded, self.source_lengths = self.sources.values, self.source_lengths[sources]
        if len(rows) != batch:
            self.resize(rows, capacity)
            return
        move_rows(self.block.array, rows, self.longest)
        self.cache_lengths = self.cache_lengths[rows]
        self.longest = max(self.cache_lengths.tolist())

    def resize(self, rows: Ints, capacity: int) -> None:
        """Go on with more rows or fewer."""
        if self.other is None or self.other.array.shape[1] < len(rows):
            self.other = self.take_caches(len(rows), capacity)
        kept = self.other
        if kept.array.shape[1] > len(rows):
            kept = Block(kept.array[:, : len(rows)])
        for old, new in zip(self.block.array, kept.array, strict=True):
            old.take(rows, axis=0, out=new, mode="clip")
        self.store, self.other = self.other, self.store
        self.use(kept)
        self.cache_lengths = self.cache_lengths[rows]
        self.longest = int(self.cache_lengths.max())
