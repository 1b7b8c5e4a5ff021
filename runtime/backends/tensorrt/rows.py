"""Rows that are being decoded on a GPU: their caches never leave it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.backends.tensorrt.stores import Frame, moves_in_place
from edgeformer.runtime.backends.tensorrt.workspace import Workspace

if TYPE_CHECKING:
    from edgeformer.runtime.backends.tensorrt.executor import TensorRTExecutor


class TensorRTRows:
    """Rows over a workspace: they are its first ones.

    Steps of more tokens than the engine takes at once are taken in portions.

    Attributes:
        owners: (batch,), number of the source whose keys and values each row has a copy of.
        longest: tokens of the longest row.
    """

    def __init__(self, executor: TensorRTExecutor, work: Workspace, source_lengths: Ints, limit: int) -> None:
        self.executor, self.work, self.limit = executor, work, limit
        self.source_lengths = source_lengths
        self.owners: Ints = np.arange(len(source_lengths))
        self.cache_lengths = np.zeros(len(source_lengths), np.int64)
        self.longest, self.closed = 0, False

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        batch, q_len = input_ids.shape
        last = np.full(batch, q_len, np.int64) if lengths is None else lengths
        at = np.maximum(last - 1, 0)[:, None] if logits_at is None else logits_at
        with self.executor.device.active():
            portions = list(self.portions(q_len))
            if len(portions) == 1 and at.shape[1] <= self.executor.widest:
                logits = self.logits_of(self.run(input_ids, 0, at, logits=True), at.shape[1])
            else:
                logits = np.empty((batch, at.shape[1], self.executor.sizes.vocab_size), np.float32)
                for begin, end in portions:
                    self.step_portion(input_ids[:, begin:end], begin, at, logits)
        self.advance(last)
        return logits

    def step_portion(self, input_ids: Ints, begin: int, at: Ints, logits: Floats) -> None:
        """Take some columns of a step, and the logits that are wanted there."""
        batch, width = input_ids.shape
        columns = np.broadcast_to(np.arange(width), (batch, width))
        found = self.logits_of(self.run(input_ids, begin, columns, logits=True), width)
        rows, wanted = np.nonzero((at >= begin) & (at < begin + width))
        logits[rows, wanted] = found[rows, at[rows, wanted] - begin]

    def step_next(self, input_ids: Ints) -> tuple[Ints, Floats]:
        batch, q_len = input_ids.shape
        with self.executor.device.active():
            frame = self.work.single
            for begin, end in self.portions(q_len):
                last = np.full((batch, 1), end - begin - 1)
                frame = self.run(input_ids[:, begin:end], begin, last, logits=False)
            ids = frame.chosen.view(names.NEXT_IDS, (batch,)).copy()
            log_probs = frame.chosen.view(names.NEXT_LOG_PROBS, (batch,)).copy()
        self.advance(np.full(batch, q_len))
        return ids, log_probs

    def portions(self, q_len: int) -> Iterator[tuple[int, int]]:
        """First and last + 1 column of each portion of a step."""
        if self.longest + q_len > self.limit:
            raise ValueError(f"a row would hold {self.longest + q_len} tokens; {self.limit} were asked for")
        for begin in range(0, q_len, self.executor.widest):
            yield begin, min(q_len, begin + self.executor.widest)

    def run(self, input_ids: Ints, begin: int, at: Ints, *, logits: bool) -> Frame:
        """One execution of the step graph, waited for; `begin` columns of the same step went before."""
        batch, q_len = input_ids.shape
        work, wanted = self.work, at.shape[1]
        frame = work.frame(q_len, wanted)
        frame.write(input_ids, self.cache_lengths + begin, at, self.source_lengths)
        self.executor.stepper.step(
            work.key(batch), lambda: work.step_binding(frame, batch, q_len, wanted), frame, at.size, logits
        )
        work.stepped()
        return frame

    def logits_of(self, frame: Frame, wanted: int) -> Floats:
        shape = (len(self.cache_lengths), wanted, self.executor.sizes.vocab_size)
        return frame.logits.view(names.LOGITS, shape)

    def advance(self, lengths: Ints) -> None:
        self.cache_lengths += lengths
        self.longest = int(self.cache_lengths.max())

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        """Rows take their copy of their source along, so that `sources` has nothing to add."""
        with self.executor.device.active():
            if len(rows) > self.work.rows:
                self.grow(rows)
            else:
                self.move(rows)
        self.owners, self.source_lengths = self.owners[rows], self.source_lengths[rows]
        self.cache_lengths = self.cache_lengths[rows]
        self.longest = int(self.cache_lengths.max())

    def move(self, rows: Ints) -> None:
        work, spare = self.work, self.work.rows
        work.caches.take(moves_in_place(rows.tolist(), spare), work.caches, self.longest)
        wanted = rows.copy()
        shared = min(len(rows), len(self.owners))
        stays = self.owners[rows[:shared]] == self.owners[:shared]
        wanted[:shared][stays] = np.arange(shared)[stays]
        work.sources.take(moves_in_place(wanted.tolist(), spare), work.sources, work.source_len)

    def grow(self, rows: Ints) -> None:
        """Go on in a workspace for more rows."""
        old, work = self.work, self.executor.take_workspace(len(rows), self.work.source_len)
        moves = list(enumerate(rows.tolist()))
        work.clear()
        work.caches.take(moves, old.caches, self.longest)
        work.sources.take(moves, old.sources, work.source_len)
        self.executor.device.synchronize()
        self.work = work
        self.executor.give_workspace(old)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.executor.give_workspace(self.work)
