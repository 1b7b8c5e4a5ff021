"""ONNX Runtime on the CPU: buffers bound once and written in place, so that a step is one call into its session."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime import names
from edgeformer.runtime.backends import Floats, Ints, older
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.errors import BundleError, OptionError

if TYPE_CHECKING:
    import onnxruntime

FIRST_CAPACITY = 8
# Sources are read in groups in which the shortest is at least this share of the longest: padding costs as much as text.
LIKE_LENGTH = 0.85
# ONNX Runtime fuses Add and LayerNormalization into a kernel that takes up to seven times as long as the two.
SLOWER_FUSIONS = ["SkipLayerNormFusion"]


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


def installed_version() -> str | None:
    """Of whichever distribution brought the module; None if its metadata is not there."""
    for distribution in ("onnxruntime", "onnxruntime-gpu"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


class OnnxRuntimeExecutor:
    """The encoder and step graphs of an artifact, loaded."""

    def __init__(self, bundle: Bundle, artifact: Artifact, threads: int | None) -> None:
        import onnxruntime

        if threads is not None and threads < 1:
            raise OptionError(f"threads is {threads}, expected at least 1")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads or os.cpu_count() or 1
        # Each session has its own threads, which would otherwise go on spinning on the cores that the next one needs.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.sizes, self.artifact = bundle.manifest.sizes, artifact
        self.pad = bundle.manifest.tokens.pad

        def session(role: str) -> onnxruntime.InferenceSession:
            path = bundle.folder / artifact.graphs[role]
            try:
                return onnxruntime.InferenceSession(
                    path, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER_FUSIONS
                )
            except Exception as error:  # onnxruntime raises classes of its own that share no other root
                raise BundleError(
                    f"bundle {bundle.folder}", [f"{artifact.graphs[role]} does not load: {error}"]
                ) from error

        self.encoder, self.decoder = session("encoder"), session("decoder")
        self.decoder_inputs = {value.name for value in self.decoder.get_inputs()}
        self.spares = Spares()

    def start(self, sources: Sequence[Sequence[int]], capacity: int) -> OnnxRuntimeRows:
        lengths = np.array([len(source) for source in sources], np.int64)
        groups = list(like_lengths(lengths))
        if len(groups) == 1:
            return OnnxRuntimeRows(self, lengths, self.encode(sources, lengths), capacity)
        sizes = self.sizes
        shape = (len(sources), sizes.num_heads, int(lengths.max()), sizes.head_dim)
        encoded = [np.zeros(shape, np.float32) for _ in range(2 * sizes.num_layers)]
        for group in groups:
            parts = self.encode([sources[i] for i in group], lengths[group])
            for whole, part in zip(encoded, parts, strict=True):
                whole[group, :, : part.shape[2]] = part
        return OnnxRuntimeRows(self, lengths, encoded, capacity)

    def encode(self, sources: Sequence[Sequence[int]], lengths: Ints) -> list[Floats]:
        """Keys and values of each layer, (batch, num_heads, longest source, head_dim) each."""
        ids = np.full((len(sources), lengths.max()), self.pad, np.int64)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        sizes, (batch, source_len) = self.sizes, ids.shape
        shape = (batch, sizes.num_heads, source_len, sizes.head_dim)
        encoded = [np.empty(shape, np.float32) for _ in range(2 * sizes.num_layers)]
        binding = Binding(self.encoder)
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


class Binding:
    """NumPy arrays bound to a session by address: kept alive here, read and written in place."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session
        self.binding = session.io_binding()
        self.alive: dict[str, NDArray[Any]] = {}

    def inputs(self, arrays: dict[str, NDArray[Any]]) -> None:
        for name, array in arrays.items():
            self.binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self.alive |= arrays

    def outputs(self, arrays: dict[str, NDArray[Any]]) -> None:
        for name, array in arrays.items():
            self.binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self.alive |= arrays

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)


class Frame:
    """The buffers of a step of one shape, bound once; caches and sources are bound when they change."""

    def __init__(self, executor: OnnxRuntimeExecutor, shape: tuple[int, int, int, int]) -> None:
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
        self.caches: Floats | None = None
        self.encoded: list[Floats] | None = None
        given: dict[str, NDArray[Any]] = {
            names.INPUT_IDS: self.ids,
            names.CACHE_LENGTHS: self.cache_lengths,
            names.LOGITS_AT: self.logits_at,
            names.SOURCE_LENGTHS: self.source_lengths,
            names.POSITIONS: self.positions,
            names.LAST_POSITIONS: self.last_positions,
            names.TOTAL_LENGTH: self.total_length,
            names.SOURCE_SHAPE: np.array([sources, batch // sources * q_len, width]),
            names.ROW_SHAPE: np.array([batch, q_len, width]),
        }
        self.binding = Binding(executor.decoder)
        self.binding.inputs({name: array for name, array in given.items() if name in executor.decoder_inputs})
        self.binding.outputs({names.LOGITS: self.logits})

    def attach(self, caches: Floats, encoded: list[Floats], source_lengths: Ints) -> None:
        if self.caches is not caches:
            self.binding.inputs(dict(zip(names.past_names(self.sizes), caches, strict=True)))
            self.binding.outputs(dict(zip(names.present_names(self.sizes), caches, strict=True)))
            self.caches = caches
        if self.encoded is not encoded:
            self.binding.inputs(dict(zip(names.encoded_names(self.sizes), encoded, strict=True)))
            self.encoded = encoded
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


class OnnxRuntimeRows:
    """Rows over caches that the step graph updates in place.

    Caches begin small and double as rows grow, since attention may cost as much as the cache is long. Nothing is bound
    or allocated in a step whose shapes are those of the step before.
    """

    def __init__(self, executor: OnnxRuntimeExecutor, source_lengths: Ints, encoded: list[Floats], limit: int) -> None:
        self.executor, self.limit = executor, limit
        self.source_lengths, self.encoded = source_lengths, encoded
        self.cache_lengths = np.zeros(len(source_lengths), np.int64)
        self.longest = 0
        # Rows are copied from one store to the other when some leave; the caches in use are the first rows of a store.
        self.store = self.caches = self.take_caches(len(source_lengths), min(limit, FIRST_CAPACITY))
        self.other: Floats | None = None
        self.frame: Frame | None = None

    def take_caches(self, batch: int, capacity: int) -> Floats:
        """All caches in one array, (key and value of each layer, batch, num_kv_heads, capacity, head_dim).

        What a spare one holds from before lies behind every row's length, and is finite, so it is never seen.
        """
        sizes = self.executor.sizes
        shape = (2 * sizes.num_layers, batch, sizes.num_kv_heads, capacity, sizes.head_dim)
        spare: Floats | None = self.executor.spares.take(shape)
        return np.zeros(shape, np.float32) if spare is None else spare

    def give_caches(self) -> None:
        for store in (self.store, self.other):
            if store is not None and store.shape[1] <= Spares.MOST_ROWS:
                self.executor.spares.keep(store.shape, store)
        self.other = None

    def use_frame(self, q_len: int, wanted: int) -> Frame:
        shape = (len(self.cache_lengths), len(self.source_lengths), q_len, wanted)
        frame = self.frame
        if frame is None or frame.shape != shape:
            self.give_frame()
            frame = self.frame = self.executor.spares.take(shape) or Frame(self.executor, shape)
        frame.attach(self.caches, self.encoded, self.source_lengths)
        return frame

    def give_frame(self) -> None:
        if self.frame is not None and self.frame.shape[0] <= Spares.MOST_ROWS and self.frame.shape[2] == 1:
            self.executor.spares.keep(self.frame.shape, self.frame)
        self.frame = None

    def close(self) -> None:
        self.give_frame()
        self.give_caches()

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        batch, q_len = input_ids.shape
        if self.longest + q_len > self.caches.shape[3]:
            self.reserve(self.longest + q_len)
        if q_len > 1 and batch > 1 and self.longest and self.executor.artifact.long_steps_need_empty_caches:
            return self.step_by_token(input_ids, lengths, logits_at)
        frame = self.use_frame(q_len, 1 if logits_at is None else logits_at.shape[1])
        frame.ids[...] = input_ids
        frame.choose(lengths, logits_at)
        frame.place(self.cache_lengths, self.longest)
        frame.binding.run()
        if lengths is None:
            self.cache_lengths += q_len
            self.longest += q_len
        else:
            self.cache_lengths += lengths
            self.longest = int(self.cache_lengths.max())
        return frame.logits

    def step_by_token(self, input_ids: Ints, lengths: Ints | None, logits_at: Ints | None) -> Floats:
        """The same result by steps of one token, for kernels that take several into empty caches only."""
        batch, q_len = input_ids.shape
        lengths = np.full(batch, q_len, np.int64) if lengths is None else lengths
        before = self.cache_lengths.copy()
        logits = np.stack([self.step(input_ids[:, t : t + 1])[:, 0].copy() for t in range(q_len)], axis=1)
        self.cache_lengths[...] = before + lengths
        self.longest = int(self.cache_lengths.max())
        at = (lengths - 1)[:, None] if logits_at is None else logits_at
        return logits[np.arange(batch)[:, None], at]

    def reserve(self, length: int) -> None:
        """Make room for rows of this many tokens."""
        if length > self.limit:
            raise ValueError(f"a row would hold {length} tokens; {self.limit} were asked for")
        _, batch, _, capacity, _ = self.caches.shape
        grown = self.take_caches(batch, min(self.limit, max(length, 2 * capacity)))
        grown[:, :, :, :capacity] = self.caches
        self.give_caches()
        self.store = self.caches = grown

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        _, batch, _, capacity, _ = self.caches.shape
        if not self.executor.artifact.shared_sources and (sources is not None or len(rows) != batch):
            sources = rows  # each row has a copy of its source, and takes it along
        if sources is not None:
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
            return
        (moved,) = np.nonzero(rows != np.arange(batch))
        if len(moved):
            origin = rows[moved]
            written = self.caches[:, :, :, : self.longest]
            written[:, moved] = written[:, origin]
            self.cache_lengths[moved] = self.cache_lengths[origin]
