"""Weights as whole numbers of 4 or 8 bits, in blocks that share a scale.

A block of weights w becomes codes c with w about scale * (c - zero_point). Symmetric blocks have the zero point in the
middle of the codes, so that zero stays zero; others have one of their own, stored beside the scale.

Where it pays, the scale is searched for: the one with the least squared error, each input weighted by how large it is
in use (after J. Lin et al., "AWQ: Activation-aware Weight Quantization", 2023, which weights by activations as well).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

# Shares of the range that a block's scale may cover, to be searched: cutting off the extremes may serve the others.
SHARES = {8: (1.0,), 4: tuple(np.linspace(0.7, 1.05, 15).tolist())}


@dataclasses.dataclass(frozen=True, slots=True)
class Scheme:
    """How the numbers of a weight are stored.

    Attributes:
        bits: 4 or 8.
        block: weights along the input that share a scale.
        symmetric: whether the zero point is the middle of the codes.
    """

    bits: int
    block: int
    symmetric: bool = True

    @property
    def middle(self) -> int:
        return 1 << (self.bits - 1)

    def bytes(self, k: int, n: int) -> int:
        """Of a weight (k, n): codes, scales and zero points."""
        blocks = n * (k // self.block)
        points = 0 if self.symmetric else n * -(-(k // self.block) * self.bits // 8)
        return n * k * self.bits // 8 + 4 * blocks + points


@dataclasses.dataclass(frozen=True, slots=True)
class Codes:
    """A weight (k, n) in codes.

    Attributes:
        scheme: how they are to be read.
        codes: uint8 (n, k / block, block).
        scales: float32 (n, k / block).
        zero_points: uint8 (n, k / block); None where they are the middle.
    """

    scheme: Scheme
    codes: NDArray[np.uint8]
    scales: Array
    zero_points: NDArray[np.uint8] | None

    def packed(self) -> NDArray[np.uint8]:
        """Codes as ONNX Runtime stores them, (n, k / block, block * bits / 8): of 4 bits the first in the low half."""
        return pack(self.codes, self.scheme.bits)

    def packed_zero_points(self) -> NDArray[np.uint8] | None:
        """(n, bytes of k / block zero points)."""
        if self.zero_points is None:
            return None
        if self.scheme.bits == 4 and self.zero_points.shape[1] % 2:
            padded = np.concatenate((self.zero_points, np.zeros_like(self.zero_points[:, :1])), axis=1)
            return pack(padded, 4)
        return pack(self.zero_points, self.scheme.bits)

    def weight(self) -> Array:
        """What the codes stand for, float32 (k, n)."""
        points = np.float32(self.scheme.middle) if self.zero_points is None else self.zero_points[..., None]
        values = (self.codes.astype(np.float32) - points) * self.scales[..., None]
        return values.reshape(len(values), -1).T


def pack(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Two codes of 4 bits in each byte; codes of 8 bits as they are."""
    if bits == 8:
        return np.ascontiguousarray(codes)
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def quantize(weight: Array, scheme: Scheme, importance: Array | None = None) -> Codes:
    """Codes of a weight, each block on its own.

    Args:
        weight: float32 (k, n), k a multiple of the scheme's block.
        importance: float32 (k,), mean square of each input; all the same where it is None.
    """
    k, n = weight.shape
    blocks = weight.T.reshape(n, k // scheme.block, scheme.block)
    weights = np.ones(k, np.float32) if importance is None else importance / max(importance.mean(), 1e-30) + 1e-3
    return Codes(scheme, *coded(blocks, scheme, weights.astype(np.float32).reshape(k // scheme.block, scheme.block)))


def coded(
    blocks: Array, scheme: Scheme, importance: Array
) -> tuple[NDArray[np.uint8], Array, NDArray[np.uint8] | None]:
    """Codes, scales and zero points with the least error of those that are tried.

    Args:
        blocks: float32 (n, count, block).
        importance: float32 (count, block).
    """
    best = np.full(blocks.shape[:2], np.inf, np.float32)
    scales, points = np.zeros(blocks.shape[:2], np.float32), np.full(blocks.shape[:2], scheme.middle, np.float32)
    for tried_scales, tried_points in candidates(blocks, scheme):
        difference = (codes_of(blocks, scheme, tried_scales, tried_points) - tried_points[..., None]) * tried_scales[
            ..., None
        ] - blocks
        error = np.einsum("ncb,ncb,cb->nc", difference, difference, importance)
        better = error < best
        for kept, tried in ((best, error), (scales, tried_scales), (points, tried_points)):
            kept[better] = tried[better]
    codes = codes_of(blocks, scheme, scales, points).astype(np.uint8)
    return codes, scales, None if scheme.symmetric else points.astype(np.uint8)


def candidates(blocks: Array, scheme: Scheme) -> list[tuple[Array, Array]]:
    """Scales and zero points to try, each (n, count)."""
    most = (1 << scheme.bits) - 1
    middle = np.full(blocks.shape[:2], scheme.middle, np.float32)
    found = []
    if scheme.symmetric:
        largest = np.abs(blocks).max(-1)
        at = np.abs(blocks).argmax(-1)[..., None]
        signed = np.take_along_axis(blocks, at, -1)[..., 0]
        for share in SHARES[scheme.bits]:
            found.append((largest * np.float32(share / (scheme.middle - 1)), middle))
            if scheme.bits == 4:  # the codes reach one further below the middle: the largest weight may be there
                found.append((signed * np.float32(-share / scheme.middle), middle))
        return found
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)
    for share in SHARES[scheme.bits]:
        scales = (high - low) * np.float32(share / most)
        points = np.clip(np.rint(-low * share / np.where(scales == 0, 1, scales)), 0, most)
        found.append((scales, points.astype(np.float32)))
    return found


def codes_of(blocks: Array, scheme: Scheme, scales: Array, points: Array) -> Array:
    """The nearest codes, float32 in the shape of the blocks."""
    safe = np.where(scales == 0, 1, scales)
    least = 1 if scheme.bits == 8 and scheme.symmetric else 0
    return np.clip(np.rint(blocks / safe[..., None]) + points[..., None], least, (1 << scheme.bits) - 1)
