"""The GPU memory of some rows: taken at once, used again by later rows, and bound to the engine by address."""

from __future__ import annotations

import itertools

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends.tensorrt.driver import Device
from edgeformer.runtime.backends.tensorrt.stepping import Binding, Key
from edgeformer.runtime.backends.tensorrt.stores import Block, Frame, RowStore
from edgeformer.runtime.names import Sizes

NUMBERS = itertools.count()


class Workspace:
    """Caches, sources and a decoding step's numbers, for up to so many rows.

    Attributes:
        number: tells it from every other of this process, so that no captured graph outlives its memory unnoticed.
        caches: keys and values of the rows' own tokens.
        others: a second set, where the engine does not write in place; the two change places after every step.
        sources: keys and values of each row's source; each row has its own copy.
        texts: ids and lengths of the sources.
        single: numbers of a decoding step.
        long: numbers of steps of several tokens; it grows.
    """

    def __init__(
        self, device: Device, sizes: Sizes, itemsize: int, rows: int, capacity: int, source_len: int, in_place: bool
    ) -> None:
        self.device, self.sizes, self.rows, self.source_len = device, sizes, rows, source_len
        self.number, self.swapped, self.capacity = next(NUMBERS), False, capacity
        tensors = 2 * sizes.num_layers

        def store(heads: int, length: int) -> RowStore:
            return RowStore(device, tensors, (rows, heads, length, sizes.head_dim), itemsize)

        self.caches = store(sizes.num_kv_heads, capacity)
        self.others = None if in_place else store(sizes.num_kv_heads, capacity)
        self.sources = store(sizes.num_heads, source_len)
        self.texts = Block(
            device, {names.INPUT_IDS: (np.int64, rows * source_len), names.SOURCE_LENGTHS: (np.int64, rows)}
        )
        self.single = Frame(device, rows, 1, 1, sizes.vocab_size)
        self.long: Frame | None = None

    def clear(self) -> None:
        for store in (self.caches, self.others, self.sources):
            if store is not None:
                store.clear()

    def frame(self, q_len: int, wanted: int) -> Frame:
        """Where a step of this shape has its numbers."""
        if q_len == wanted == 1:
            return self.single
        if self.long is None or not self.long.holds(q_len, wanted):
            if self.long is not None:
                q_len, wanted = max(q_len, self.long.q_len), max(wanted, self.long.wanted)
                self.long.close()
            self.long = Frame(self.device, self.rows, q_len, wanted, self.sizes.vocab_size)
        return self.long

    def key(self, batch: int) -> Key:
        """Of a decoding step of so many rows."""
        return Key(self.number, self.swapped, batch)

    def encoder_binding(self, batch: int) -> Binding:
        shapes = {names.INPUT_IDS: (batch, self.source_len), names.SOURCE_LENGTHS: (batch,)}
        addresses = {name: self.texts.address(name) for name in self.texts.offsets}
        addresses |= zip(names.encoded_names(self.sizes), self.sources.addresses(), strict=True)
        return Binding(shapes, addresses)

    def step_binding(self, frame: Frame, batch: int, q_len: int, wanted: int) -> Binding:
        sizes = self.sizes
        shapes = {
            names.INPUT_IDS: (batch, q_len),
            names.CACHE_LENGTHS: (batch,),
            names.LOGITS_AT: (batch, wanted),
            names.SOURCE_LENGTHS: (batch,),
        }
        cache = (batch, sizes.num_kv_heads, self.capacity, sizes.head_dim)
        source = (batch, sizes.num_heads, self.source_len, sizes.head_dim)
        shapes |= dict.fromkeys(names.past_names(sizes), cache) | dict.fromkeys(names.encoded_names(sizes), source)
        past, written = self.caches.addresses(), (self.others or self.caches).addresses()
        addresses = frame.addresses | dict(zip(names.past_names(sizes), past, strict=True))
        addresses |= zip(names.present_names(sizes), written, strict=True)
        addresses |= zip(names.encoded_names(sizes), self.sources.addresses(), strict=True)
        return Binding(shapes, addresses)

    def stepped(self) -> None:
        """What a step wrote is what the next one reads."""
        if self.others is not None:
            self.caches, self.others = self.others, self.caches
            self.swapped = not self.swapped

    def close(self) -> None:
        for part in (self.caches, self.others, self.sources, self.texts, self.single, self.long):
            if part is not None:
                part.close()
