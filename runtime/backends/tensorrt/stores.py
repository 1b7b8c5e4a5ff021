"""Where caches, sources and a step's numbers lie on the GPU, and how rows move there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from edgeformer.runtime import names
from edgeformer.runtime.backends import Ints
from edgeformer.runtime.backends.tensorrt.driver import Device, DeviceMemory, PinnedMemory, aligned
from edgeformer.runtime.memory_needs import store_lines
from edgeformer.runtime.names import Sizes


class RowStore:
    """Tensors of one shape, (rows, heads, length, head_dim), one after another in one allocation.

    Keys and values of all layers lie in it, so that one three-dimensional copy moves a row of all of them: a plane for
    each tensor, a line for each head. Behind a tensor's last row there is one more, for rows that change places.

    Attributes:
        rows: how many there are; the engine sees the first so many of them.
        pitch: bytes of a line: what one head holds of a row.
        lines: of a plane, so many that the next tensor begins where TensorRT allows.
    """

    def __init__(self, device: Device, tensors: int, shape: tuple[int, int, int, int], itemsize: int) -> None:
        self.device, self.tensors = device, tensors
        self.rows, self.heads, length, head_dim = shape
        self.token_bytes = head_dim * itemsize
        self.pitch = length * self.token_bytes
        self.lines = store_lines(self.rows, self.heads, self.pitch)
        self.memory = DeviceMemory(device, tensors * self.lines * self.pitch)

    def addresses(self) -> list[int]:
        """Of each tensor."""
        return [self.memory.address + i * self.lines * self.pitch for i in range(self.tensors)]

    def clear(self) -> None:
        """Queue zeros: what lies behind a row's length is never seen, but it must be finite."""
        self.device.clear(self.memory.address, self.memory.count)

    def take(self, moves: Iterable[tuple[int, int]], origin: RowStore, length: int) -> None:
        """Queue copies of rows, in this order: (to, from) each, from this store or from another of the same lines.

        Args:
            moves: indices of rows; `rows` is the spare one.
            origin: where the rows come from.
            length: tokens of a row that are worth copying.
        """
        box = (length * self.token_bytes, self.heads, self.tensors)
        for to, source in moves if length else ():
            self.device.copy_box(self.line(to), origin.line(source), self.pitch, box)

    def line(self, row: int) -> tuple[int, int]:
        return self.memory.address + row * self.heads * self.pitch, self.lines

    def close(self) -> None:
        self.memory.close()


def moves_in_place(rows: Sequence[int], spare: int) -> list[tuple[int, int]]:
    """Copies, one after another, after which row i holds what row rows[i] held; as few as there can be.

    A row is overwritten once nobody waits for it any more. Where rows wait in a circle, one of them is first copied to
    the spare row.

    Args:
        rows: for each new row, the present row that it continues; one may be taken more than once.
        spare: a row that holds nothing.

    Returns:
        (to, from) of each copy.
    """
    waiting = {to: source for to, source in enumerate(rows) if to != source}
    readers = Counter(waiting.values())
    ready = [to for to in waiting if not readers[to]]
    moves = []
    while waiting:
        if not ready:
            saved = next(iter(waiting))
            moves.append((spare, saved))
            waiting = {to: spare if source == saved else source for to, source in waiting.items()}
            readers[spare], readers[saved] = readers[saved], 0
            ready = [saved]
        to = ready.pop()
        source = waiting.pop(to)
        moves.append((to, source))
        readers[source] -= 1
        if not readers[source] and source in waiting:
            ready.append(source)
    return moves


class Block:
    """Named arrays in one allocation on the GPU, and their mirror in pinned memory of the host."""

    def __init__(self, device: Device, arrays: Mapping[str, tuple[DTypeLike, int]]) -> None:
        self.device, self.offsets, self.count = device, dict[str, int](), 0
        self.dtypes = {name: np.dtype(dtype) for name, (dtype, _) in arrays.items()}
        for name, (dtype, count) in arrays.items():
            self.offsets[name] = self.count
            self.count += aligned(np.dtype(dtype).itemsize * count)
        self.memory, self.host = DeviceMemory(device, self.count), PinnedMemory(device, self.count)

    def address(self, name: str) -> int:
        return self.memory.address + self.offsets[name]

    def view(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The host's mirror of an array, or of its first elements."""
        dtype, begin = self.dtypes[name], self.offsets[name]
        size = int(np.prod(shape)) * dtype.itemsize
        return self.host.array[begin : begin + size].view(dtype).reshape(shape)

    def upload(self) -> None:
        """Queue a copy of all arrays to the GPU."""
        self.device.upload(self.memory.address, self.host.address, self.count)

    def download(self, count: int | None = None) -> None:
        """Queue a copy of all bytes, or of the first, to the host."""
        self.device.download(self.host.address, self.memory.address, self.count if count is None else count)

    def close(self) -> None:
        self.memory.close()
        self.host.close()


class Frame:
    """What goes into a step and comes out of it, beside caches and sources, for up to so many rows and tokens."""

    def __init__(self, device: Device, batch: int, q_len: int, wanted: int, sizes: Sizes) -> None:
        self.batch, self.q_len, self.wanted, self.vocab_size = batch, q_len, wanted, sizes.vocab_size
        positions = batch * wanted
        counts = {
            names.INPUT_IDS: batch * q_len, names.CACHE_LENGTHS: batch, names.LOGITS_AT: positions,
            names.SOURCE_LENGTHS: batch,
        }  # fmt: skip
        self.given = Block(device, {name: (np.int64, counts[name]) for name in names.step_inputs(sizes)})
        self.chosen = Block(
            device, {names.NEXT_IDS: (np.int64, positions), names.NEXT_LOG_PROBS: (np.float32, positions)}
        )
        self.logits = Block(device, {names.LOGITS: (np.float32, positions * sizes.vocab_size)})
        self.addresses = {
            name: block.address(name) for block in (self.given, self.chosen, self.logits) for name in block.offsets
        }

    @property
    def decodes(self) -> bool:
        """Whether it is for steps of one token a row."""
        return self.q_len == self.wanted == 1

    def holds(self, q_len: int, wanted: int) -> bool:
        return q_len <= self.q_len and wanted <= self.wanted

    def write(self, ids: Ints, cache_lengths: Ints, logits_at: Ints, source_lengths: Ints | None) -> None:
        given = {
            names.INPUT_IDS: ids,
            names.CACHE_LENGTHS: cache_lengths,
            names.LOGITS_AT: logits_at,
            names.SOURCE_LENGTHS: source_lengths,
        }
        for name, array in given.items():
            if array is not None:
                self.given.view(name, array.shape)[...] = array

    def download(self, positions: int, logits: bool) -> None:
        """Queue what comes to the host: the chosen tokens, and logits of so many positions where they are wanted."""
        self.chosen.download()
        if logits:
            self.logits.download(positions * self.vocab_size * 4)

    def close(self) -> None:
        for block in (self.given, self.chosen, self.logits):
            block.close()
