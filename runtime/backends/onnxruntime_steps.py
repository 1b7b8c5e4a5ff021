"""Graphs that were rewritten for ONNX Runtime, and rows that step through them: what its backends share."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.backends.onnxruntime_frames import Buffers, Frame, Spares
from edgeformer.runtime.backends.onnxruntime_long_steps import long_step
from edgeformer.runtime.backends.onnxruntime_rotation import RotationTables, Tables
from edgeformer.runtime.backends.onnxruntime_sessions import Sessions, input_type
from edgeformer.runtime.bundle import ROLES, Artifact, Bundle

MOST_COLUMNS = 32  # of a frame that is kept: longer steps are prompts, whose lengths seldom come again


# Shares of the range of a step's logits that a logit was seen to differ by, with a wide margin: see docs/speed.md.
EXACT_NOISE, ROUNDED_NOISE = 1e-4, 0.015
IN_FLOAT32 = {"ort-cpu": ("fp32", "fp16", "bf16"), "ort-cuda": ()}  # precisions that are computed so


class GraphExecutor:
    """The encoder and step graphs of an artifact, loaded.

    Args:
        device: where caches are kept, as ONNX Runtime names it: cpu or cuda.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact, sessions: Sessions, device: str) -> None:
        self.sizes, self.artifact, self.device = bundle.manifest.sizes, artifact, device
        self.pad = bundle.manifest.tokens.pad
        self.sessions = {role: sessions.open(role) for role in ROLES[bundle.manifest.kind]}
        self.step_noise = EXACT_NOISE if artifact.precision in IN_FLOAT32[artifact.backend] else ROUNDED_NOISE
        self.decoder = self.sessions["decoder"]
        self.decoder_inputs = {value.name for value in self.decoder.get_inputs()}
        self.dtype = input_type(self.decoder, names.past_names(self.sizes)[0])
        self.spares = Spares()
        self.rotation: RotationTables | None = None
        if names.ROTATION in artifact.graphs:
            self.rotation = RotationTables(sessions.open(names.ROTATION), self.sizes.max_positions - 1, self.dtype)
        self.no_tables: Tables = {}

    def tables(self, capacity: int) -> Tables:
        """What turns queries and keys in caches of this capacity, where something does."""
        return self.rotation.reaching(capacity) if self.rotation is not None else self.no_tables

    def padded(self, sources: Sequence[Sequence[int]], lengths: Ints) -> Ints:
        """The sources' ids, (batch, longest source)."""
        ids = np.full((len(sources), lengths.max()), self.pad, np.int64)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = source
        return ids


class Held:
    """Rows, or one of them: what they hold, and steps of it that the kernels take as they are.

    Attributes:
        caches: keys and values of each layer, (batch, num_kv_heads, capacity, head_dim) each.
        encoded: the sources' keys and values, (sources, num_heads, longest source, head_dim) each; none where the model
            reads no source.
        cache_lengths: (batch,), tokens that each row holds.
        longest: the most of them.
        source_lengths: (sources,); never changed in place.
        nbytes: of the caches, where they are kept for other rows.
    """

    caches: Buffers
    encoded: Buffers

    def __init__(
        self, executor: GraphExecutor, cache_lengths: Ints, source_lengths: Ints, capacity: int, longest: int
    ) -> None:
        self.executor, self.capacity = executor, capacity
        self.cache_lengths, self.source_lengths = cache_lengths, source_lengths
        self.longest = longest
        self.frame: Frame | None = None

    @property
    def nbytes(self) -> int:
        return 0

    def use_frame(self, q_len: int, wanted: int) -> Frame:
        shape = (len(self.cache_lengths), len(self.source_lengths), q_len, wanted)
        frame = self.frame
        if frame is None or frame.shape != shape:
            self.give_frame()
            frame = self.frame = self.executor.spares.take(shape) or Frame(self.executor, shape)
        frame.attach(self)
        return frame

    def give_frame(self) -> None:
        frame = self.frame
        if frame is not None and not frame.copied and frame.shape[2] <= MOST_COLUMNS:
            frame.nbytes = frame.logits.nbytes + self.nbytes  # it holds on to what it is bound to
            self.executor.spares.keep(frame.shape, frame)
        self.frame = None

    def run(self, input_ids: Ints, lengths: Ints | None, logits_at: Ints | None) -> Floats:
        """As `step`, in one run of the graph, and with room for all columns."""
        frame = self.use_frame(input_ids.shape[1], 1 if logits_at is None else logits_at.shape[1])
        frame.ids[...] = input_ids
        frame.choose(lengths, logits_at)
        frame.place(self.cache_lengths, self.longest)
        logits = frame.run()
        if lengths is None:
            self.cache_lengths += frame.q_len
            self.longest += input_ids.shape[1]
        else:
            self.cache_lengths += lengths
            self.longest = int(self.cache_lengths.max())
        return logits


class SteppingRows(Held, abc.ABC):
    """Rows over caches that the step graph updates in place, wherever those are.

    Attributes:
        comes_apart: whether a row can be stepped by itself.
    """

    comes_apart = False

    def __init__(self, executor: GraphExecutor, batch: int, source_lengths: Ints, limit: int, capacity: int) -> None:
        super().__init__(executor, np.zeros(batch, np.int64), source_lengths, capacity, 0)
        self.limit = limit

    @abc.abstractmethod
    def reserve(self, length: int) -> None:
        """Make room for rows of this many tokens."""

    @abc.abstractmethod
    def give_caches(self) -> None:
        """Give the caches' memory back."""

    def row(self, at: int) -> Held:
        """One row, in the same memory."""
        raise NotImplementedError(f"the caches of {type(self).__name__} do not come apart")

    def next_capacity(self, length: int) -> int:
        """The capacity to grow to, so that growing is rare.

        Raises:
            ValueError: more than was asked for at the start.
        """
        if length > self.limit:
            raise ValueError(f"a row would hold {length} tokens; {self.limit} were asked for")
        return min(self.limit, max(length, 2 * self.capacity))

    def rewind(self, lengths: Ints) -> None:
        """What is beyond a row's length is never seen."""
        self.cache_lengths[...] = lengths
        self.longest = int(lengths.max())

    def close(self) -> None:
        self.give_frame()
        self.give_caches()

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        q_len = input_ids.shape[1]
        if self.longest + q_len > self.capacity:
            self.reserve(self.longest + q_len)
        if q_len > 1 and (logits := long_step(self, input_ids, lengths, logits_at)) is not None:
            return logits
        return self.run(input_ids, lengths, logits_at)
