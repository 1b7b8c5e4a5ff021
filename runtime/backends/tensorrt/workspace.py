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


class Sources:
    """What up to so many rows read: ids and lengths, and the keys and values that the encoder makes of them.

    Attributes:
        length: tokens that each source is padded to.
        store: keys and values of each row's source; each row has its own copy.
        texts: ids and lengths of the sources.
    """

    def __init__(self, device: Device, sizes: Sizes, itemsize: int, rows: int, length: int) -> None:
        self.sizes, self.length = sizes, length
        self.store = RowStore(device, 2 * sizes.num_layers, (rows, sizes.num_heads, length, sizes.head_dim), itemsize)
        ids = {names.INPUT_IDS: (np.int64, rows * length), names.SOURCE_LENGTHS: (np.int64, rows)}
        self.texts = Block(device, ids)

    def addresses(self) -> dict[str, int]:
        """Of the encoder's keys and values."""
        return dict(zip(names.encoded_names(self.sizes), self.store.addresses(), strict=True))

    def binding(self, batch: int) -> Binding:
        """Of the encoder, for so many rows."""
        shapes = {names.INPUT_IDS: (batch, self.length), names.SOURCE_LENGTHS: (batch,)}
        return Binding(shapes, {name: self.texts.address(name) for name in self.texts.offsets} | self.addresses())

    def close(self) -> None:
        self.store.close()
        self.texts.close()


class Workspace:
    """Caches, sources and a decoding step's numbers, for up to so many rows.

    Attributes:
        number: tells it from every other of this process, so that no captured graph outlives its memory unnoticed.
        caches: keys and values of the rows' own tokens.
        others: a second set, where the engine does not write in place; the two change places after every step.
        sources: what the rows read; None for a language model, whose source_len is 0.
        single: numbers of a decoding step.
        long: numbers of steps of several tokens; it grows.
    """

    def __init__(
        self, device: Device, sizes: Sizes, itemsize: int, rows: int, capacity: int, source_len: int, in_place: bool
    ) -> None:
        self.device, self.sizes, self.rows, self.source_len = device, sizes, rows, source_len
        self.number, self.swapped, self.capacity = next(NUMBERS), False, capacity

        def store() -> RowStore:
            shape = (rows, sizes.num_kv_heads, capacity, sizes.head_dim)
            return RowStore(device, 2 * sizes.num_layers, shape, itemsize)

        self.caches, self.others = store(), None if in_place else store()
        self.sources = Sources(device, sizes, itemsize, rows, source_len) if sizes.has_source else None
        self.single = Frame(device, rows, 1, 1, sizes)
        self.long: Frame | None = None

    def clear(self) -> None:
        sources = None if self.sources is None else self.sources.store
        for store in (self.caches, self.others, sources):
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
            self.long = Frame(self.device, self.rows, q_len, wanted, self.sizes)
        return self.long

    def key(self, batch: int) -> Key:
        """Of a decoding step of so many rows."""
        return Key(self.number, self.swapped, batch)

    def step_binding(self, frame: Frame, batch: int, q_len: int, wanted: int) -> Binding:
        sizes = self.sizes
        extents = {
            "batch": batch, "q_len": q_len, "n": wanted, "capacity": self.capacity, "source_len": self.source_len,
        }  # fmt: skip
        dims = names.step_inputs(sizes) | dict.fromkeys(names.past_names(sizes), names.cache_shape(sizes))
        dims |= dict.fromkeys(names.encoded_names(sizes), names.encoded_shape(sizes))
        shapes = {name: [extents[dim] if isinstance(dim, str) else dim for dim in each] for name, each in dims.items()}
        past, written = self.caches.addresses(), (self.others or self.caches).addresses()
        addresses = frame.addresses | dict(zip(names.past_names(sizes), past, strict=True))
        addresses |= zip(names.present_names(sizes), written, strict=True)
        return Binding(shapes, addresses | self.sources.addresses() if self.sources is not None else addresses)

    def stepped(self) -> None:
        """What a step wrote is what the next one reads."""
        if self.others is not None:
            self.caches, self.others = self.others, self.caches
            self.swapped = not self.swapped

    def close(self) -> None:
        for part in (self.caches, self.others, self.sources, self.single, self.long):
            if part is not None:
                part.close()
