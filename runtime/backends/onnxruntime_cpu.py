"""ONNX Runtime on the CPU: buffers bound once and written in place, so that a step is one call into its session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.errors import BundleError, OptionError

if TYPE_CHECKING:
    import onnxruntime

FIRST_CAPACITY = 16


class OnnxRuntimeCpu:
    """Backend `ort-cpu`."""

    name = "ort-cpu"

    def unavailable(self) -> str | None:
        return None if find_spec("onnxruntime") else "onnxruntime is not installed; pip install 'edgeformer[cpu]'"

    def load(self, bundle: Bundle, artifact: Artifact, threads: int | None) -> OnnxRuntimeExecutor:
        return OnnxRuntimeExecutor(bundle, artifact, threads)


class OnnxRuntimeExecutor:
    """The encoder and step graphs of an artifact, loaded."""

    def __init__(self, bundle: Bundle, artifact: Artifact, threads: int | None) -> None:
        import onnxruntime

        if threads is not None and threads < 1:
            raise OptionError(f"threads is {threads}, expected at least 1")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads or os.cpu_count() or 1
        self.sizes, self.artifact = bundle.manifest.sizes, artifact
        self.pad = bundle.manifest.tokens.pad

        def session(role: str) -> onnxruntime.InferenceSession:
            path = bundle.folder / artifact.graphs[role]
            try:
                return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            except Exception as error:  # onnxruntime raises classes of its own that share no other root
                raise BundleError(f"bundle {bundle.folder}", [f"{artifact.graphs[role]} does not load: {error}"]) from error

        self.encoder, self.decoder = session("encoder"), session("decoder")

    def start(self, sources: Sequence[Sequence[int]], capacity: int) -> OnnxRuntimeRows:
        lengths = np.array([len(source) for source in sources], np.int64)
        ids = np.full((len(sources), lengths.max()), self.pad, np.int64)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        return OnnxRuntimeRows(self, lengths, self.encode(ids, lengths), capacity)

    def encode(self, ids: Ints, lengths: Ints) -> list[Floats]:
        sizes, (batch, source_len) = self.sizes, ids.shape
        shape = (batch, sizes.num_heads, source_len, sizes.head_dim)
        encoded = [np.empty(shape, np.float32) for _ in range(2 * sizes.num_layers)]
        binding = Binding(self.encoder)
        binding.inputs({names.INPUT_IDS: ids, names.SOURCE_LENGTHS: lengths})
        binding.outputs(dict(zip(names.encoded_names(sizes), encoded, strict=True)))
        binding.run()
        return encoded


class Binding:
    """NumPy arrays bound to a session by address: kept alive here, read and written in place."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session
        self.binding = session.io_binding()
        self.alive: dict[str, np.ndarray] = {}

    def inputs(self, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self.binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self.alive |= arrays

    def outputs(self, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            self.binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self.alive |= arrays

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)


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
        self.caches = self.new_caches(len(source_lengths), min(limit, FIRST_CAPACITY))
        self.bound_shape: tuple[int, int, int] | None = None

    def new_caches(self, batch: int, capacity: int) -> list[Floats]:
        sizes = self.executor.sizes
        shape = (batch, sizes.num_kv_heads, capacity, sizes.head_dim)
        return [np.zeros(shape, np.float32) for _ in range(2 * sizes.num_layers)]

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        batch, q_len = input_ids.shape
        self.reserve(self.longest + q_len)
        if q_len > 1 and batch > 1 and self.longest and self.executor.artifact.long_steps_need_empty_caches:
            return self.step_by_token(input_ids, lengths, logits_at)
        wanted = 1 if logits_at is None else logits_at.shape[1]
        if self.bound_shape != (batch, q_len, wanted):
            self.bind(batch, q_len, wanted)
        self.ids[...] = input_ids
        if logits_at is not None:
            self.logits_at[...] = logits_at
        elif lengths is not None:
            self.logits_at[:, 0] = lengths - 1
        else:
            self.logits_at[...] = q_len - 1
        self.binding.run()
        self.cache_lengths += q_len if lengths is None else lengths
        self.longest = self.longest + q_len if lengths is None else int(self.cache_lengths.max())
        return self.logits

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
        batch, _, capacity, _ = self.caches[0].shape
        if length <= capacity:
            return
        if length > self.limit:
            raise ValueError(f"a row would hold {length} tokens; {self.limit} were asked for")
        grown = self.new_caches(batch, min(self.limit, max(length, 2 * capacity)))
        for old, new in zip(self.caches, grown, strict=True):
            new[:, :, :capacity] = old
        self.caches, self.bound_shape = grown, None

    def bind(self, batch: int, q_len: int, wanted: int) -> None:
        sizes, decoder = self.executor.sizes, self.executor.decoder
        self.ids = np.empty((batch, q_len), np.int64)
        self.logits_at = np.empty((batch, wanted), np.int64)
        self.logits = np.empty((batch, wanted, sizes.vocab_size), np.float32)
        self.binding = Binding(decoder)
        self.binding.inputs(
            {
                names.INPUT_IDS: self.ids,
                names.CACHE_LENGTHS: self.cache_lengths,
                names.LOGITS_AT: self.logits_at,
                names.SOURCE_LENGTHS: self.source_lengths,
                **dict(zip(names.past_names(sizes), self.caches, strict=True)),
                **dict(zip(names.encoded_names(sizes), self.encoded, strict=True)),
            }
        )
        self.binding.outputs(
            {names.LOGITS: self.logits, **dict(zip(names.present_names(sizes), self.caches, strict=True))}
        )
        self.bound_shape = (batch, q_len, wanted)

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        batch = len(self.cache_lengths)
        if not self.executor.artifact.shared_sources and (sources is not None or len(rows) != batch):
            sources = rows  # each row has a copy of its source, and takes it along
        if sources is not None:
            self.encoded = [array[sources] for array in self.encoded]
            self.source_lengths = self.source_lengths[sources]
            self.bound_shape = None
        if len(rows) != batch:
            self.caches = [cache[rows] for cache in self.caches]
            self.cache_lengths = self.cache_lengths[rows]
            self.bound_shape = None
            return
        moved = np.flatnonzero(rows != np.arange(batch))
        if len(moved) == 0:
            return
        origin = rows[moved]
        for cache in self.caches:
            written = cache[:, :, : self.longest]
            written[moved] = written[origin]
        self.cache_lengths[moved] = self.cache_lengths[origin]
