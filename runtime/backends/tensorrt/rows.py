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
        source_lengths: (batch,), tokens of each row's source; None where the model reads none.
        owners: (batch,), number of the source whose keys and values each row has a copy of.
        longest: tokens of the longest row.
    """

    def __init__(
        self, executor: TensorRTExecutor, work: Workspace, batch: int, limit: int, source_lengths: Ints | None
    ) -> None:
        self.executor, self.work, self.limit = executor, work, limit
        self.source_lengths = source_lengths
        self.owners: Ints = np.arange(batch)
        self.cache_lengths = np.zeros(batch, np.int64)
        self.longest, self.closed = 0, False

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        batch, q_len = input_ids.shape
        last = np.full(batch, q_len, np.int64) if lengths is None else lengths
        at = np.maximum(last - 1, 0)[:, None] if logits_at is None else logits_at
        with self.executor.device.active():
            portions = list(self.portions(q_len, at))
            if len(portions) == 1 and at.shape[1] <= self.executor.most_wanted:
                logits = self.logits_of(self.run(input_ids, 0, at, logits=True), at.shape[1])
            else:
                logits = np.empty((batch, at.shape[1], self.executor.sizes.vocab_size), np.float32)
                for begin, end in portions:
                    self.step_portion(input_ids[:, begin:end], begin, at, logits)
        self.advance(last)
        return logits

    def step_portion(self, input_ids: Ints, begin: int, at: Ints, logits: Floats) -> None:
        """Take some columns of a step, and the logits that are wanted there."""
        width = input_ids.shape[1]
        inside = (at >= begin) & (at < begin + width)
        columns, places = wanted_columns(np.where(inside, at - begin, -1), width, self.executor.most_wanted)
        frame = self.run(input_ids, begin, columns, logits=bool(inside.any()))
        if inside.any():
            found = self.logits_of(frame, columns.shape[1])
            rows, wanted = np.nonzero(inside)
            logits[rows, wanted] = found[rows, places[rows, wanted]]

    def step_next(self, input_ids: Ints) -> tuple[Ints, Floats]:
        batch, q_len = input_ids.shape
        with self.executor.device.active():
            frame = self.work.single
            for begin, end in self.portions(q_len, np.empty((batch, 0), np.int64)):
                last = np.full((batch, 1), end - begin - 1)
                frame = self.run(input_ids[:, begin:end], begin, last, logits=False)
            ids = frame.chosen.view(names.NEXT_IDS, (batch,)).copy()
            log_probs = frame.chosen.view(names.NEXT_LOG_PROBS, (batch,)).copy()
        self.advance(np.full(batch, q_len))
        return ids, log_probs

    def portions(self, q_len: int, at: Ints) -> Iterator[tuple[int, int]]:
        """First and last + 1 column of each portion of a step; where more logits are wanted at once, fewer columns."""
        if self.longest + q_len > self.limit:
            raise ValueError(f"a row would hold {self.longest + q_len} tokens; {self.limit} were asked for")
        begin = 0
        while begin < q_len:
            end = min(q_len, begin + self.executor.widest)
            if ((at >= begin) & (at < end)).sum(1).max() > self.executor.most_wanted:
                end = min(end, begin + self.executor.most_wanted)
            yield begin, end
            begin = end

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
        self.owners, self.cache_lengths = self.owners[rows], self.cache_lengths[rows]
        if self.source_lengths is not None:
            self.source_lengths = self.source_lengths[rows]
        self.longest = int(self.cache_lengths.max())

    def move(self, rows: Ints) -> None:
        work, spare = self.work, self.work.rows
        work.caches.take(moves_in_place(rows.tolist(), spare), work.caches, self.longest)
        if work.sources is None:
            return
        wanted = rows.copy()
        shared = min(len(rows), len(self.owners))
        stays = self.owners[rows[:shared]] == self.owners[:shared]
        wanted[:shared][stays] = np.arange(shared)[stays]
        store = work.sources.store
        store.take(moves_in_place(wanted.tolist(), spare), store, work.source_len)

    def grow(self, rows: Ints) -> None:
        """Go on in a workspace for more rows."""
        old, work = self.work, self.executor.take_workspace(len(rows), self.work.source_len)
        moves = list(enumerate(rows.tolist()))
        work.clear()
        work.caches.take(moves, old.caches, self.longest)
        if work.sources is not None and old.sources is not None:
            work.sources.store.take(moves, old.sources.store, work.source_len)
        self.executor.device.synchronize()
        self.work = work
        self.executor.give_workspace(old)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.executor.give_workspace(self.work)


def wanted_columns(at: Ints, width: int, most: int) -> tuple[Ints, Ints]:
    """The columns of a step whose logits it is asked for.

    Args:
        at: (batch, n), columns that are wanted; -1 for none.
        width: of the step, no more than `most` where a row wants more than `most` of them.
        most: that one step gives at most.

    Returns:
        (batch, count), columns for each row, and (batch, n), where among them each of `at` is found.
    """
    wanted = at >= 0
    count = max(1, int(wanted.sum(1).max()))
    if count > most:  # some are wanted more than once
        return np.broadcast_to(np.arange(width), (len(at), width)), at
    places = np.maximum(wanted.cumsum(1) - 1, 0)
    columns = np.zeros((len(at), count), np.int64)
    rows, which = np.nonzero(wanted)
    columns[rows, places[rows, which]] = at[rows, which]
    return columns, places
