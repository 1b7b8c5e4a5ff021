"""The least that work reads and computes, and how long a device takes for that at its peaks.

What attentions read and compute is counted as well: windows bound it. Tables, of which few rows are read, are not.
"""

from __future__ import annotations

import dataclasses

from edgeformer.cli.sizing.shapes import Role, Shape
from edgeformer.cli.sizing.stored import cache_item, read_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Bytes that are read, and multiplications and additions."""

    bytes: int
    flops: int

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.flops + other.flops)


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """Seconds that work takes at least; None where the device's figure is not known.

    Attributes:
        reading: at the peak bandwidth.
        computing: at the peak arithmetic.
        exceeded: whether that arithmetic is of another precision, which kernels may exceed: no bound then.
    """

    reading: float | None
    computing: float | None
    exceeded: bool = False

    @property
    def seconds(self) -> float | None:
        """At least: the longer of the two, or the one that is known; reading hides behind computing, or the reverse."""
        known = [value for value in (self.reading, None if self.exceeded else self.computing) if value is not None]
        return max(known, default=None)

    @property
    def one_after_the_other(self) -> float | None:
        """Where neither hides behind the other."""
        known = [value for value in (self.reading, self.computing) if value is not None]
        return sum(known) if known else None

    @property
    def by(self) -> str:
        """What bounds it."""
        if self.reading is None or self.computing is None or self.exceeded:
            return (
                "bandwidth" if self.reading is not None else "arithmetic" if self.computing is not None else "unknown"
            )
        return "bandwidth" if self.reading >= self.computing else "arithmetic"


def bound(work: Work, bandwidth: float | None, arithmetic: float | None, exceeded: bool = False) -> Bound:
    reading = work.bytes / bandwidth if bandwidth else None
    return Bound(reading, work.flops / arithmetic if arithmetic else None, exceeded)


def seen(held: int, window: int | None) -> int:
    """Positions that a query sees which comes after so many tokens, itself among them."""
    return min(held, window) if window else held


def seen_together(length: int, window: int | None) -> int:
    """The same, summed over all tokens of a prompt."""
    width = min(window or length, length)
    return width * (width + 1) // 2 + (length - width) * width


def step_work(shape: Shape, backend: str, precision: str, batch: int, held: int, source_len: int) -> Work:
    """One token of each row, when rows hold so many: weights once, and the caches."""
    sizes, role = shape.sizes, shape.roles["decoder"]
    item, width = cache_item(backend, precision), sizes.num_heads * sizes.head_dim
    own = sum(seen(held, window) for window in shape.windows)
    sources = sizes.num_layers * source_len if sizes.has_source else 0
    caches = 2 * item * batch * (own * sizes.num_kv_heads * sizes.head_dim + sources * width)
    products = 2 * batch * sum(weight.count for weight in role.products)
    attention = 4 * batch * width * (own + sources)
    return Work(read_bytes(shape, role, backend, precision) + caches, products + attention)


def prompt_work(shape: Shape, backend: str, precision: str, batch: int, length: int) -> Work:
    """A prompt of each row; the vocabulary is computed for last tokens alone."""
    sizes, role = shape.sizes, shape.roles["decoder"]
    head = sum(weight.count for weight in role.products if shape.is_head(weight))
    body = sum(weight.count for weight in role.products) - head
    pairs = sum(seen_together(length, window) for window in shape.windows)
    attention = 4 * batch * sizes.num_heads * sizes.head_dim * pairs
    flops = 2 * batch * (body * length + head) + attention
    return Work(read_bytes(shape, role, backend, precision), flops)


def source_work(shape: Shape, backend: str, precision: str, batch: int, length: int) -> Work:
    """A source of each row, or a text that an encoder reads; every position sees every other."""
    sizes, role = shape.sizes, shape.roles["encoder"]
    attention = 4 * batch * sizes.num_heads * sizes.head_dim * length**2 * role.attentions
    return Work(read_bytes(shape, role, backend, precision), products_of(role, batch * length) + attention)


def products_of(role: Role, tokens: int) -> int:
    return 2 * tokens * sum(weight.count for weight in role.products)
