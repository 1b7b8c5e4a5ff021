"""Drawing tokens at random: what may be drawn is cut down as Hugging Face does it, then one number decides.

A row draws one number a step from a stream of its own and takes the token at which the probabilities, added up in the
order of the ids, pass it. So a row's tokens depend on its own logits and seed alone; and as ids have one order however
close their logits are, what rounding a larger batch brings moves no token.

Tokens that cannot be drawn are left out without sorting the vocabulary: the largest logits of a few hundred groups of
tokens give a bound that as many tokens pass as are asked for, and little more; only those are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.backends import Floats, Ints
from edgeformer.runtime.options import GenerationConfig

Doubles = NDArray[np.float64]
Weights = NDArray[np.floating[Any]]

GROUP = 64  # tokens of a group, of which the largest logit is looked at
BLOCK = 512  # tokens whose probabilities are added up at once where all of a vocabulary may be drawn
LOOKS = (64, 1024, 8192)  # the likeliest tokens of top_p are looked for among so many before all are sorted
SLACK = 1e-3  # of logits, so that rounding loses no token
LOWEST = np.finfo(np.float32).min  # the least logit that is not -inf


def input_seeds(seed: int | Sequence[int] | None, inputs: int, first: int = 0) -> list[int]:
    """A seed for each of some inputs: what `seed` would be for that input alone to get the same.

    Args:
        seed: as in the options. Of one number the first input has that number, and others have ones made of it and
            of their place.
        inputs: how many.
        first: how many inputs came before, where they are given in parts.
    """
    if isinstance(seed, Sequence):
        return list(seed)
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    places = range(first, first + inputs)
    return [int(np.random.SeedSequence((seed, at)).generate_state(1, np.uint64)[0]) if at else seed for at in places]


class Sampler:
    """Draws the next token of rows.

    Args:
        options: of sampling.
        seeds: one for each input.

    Attributes:
        copies: rows of each input: they begin with the same prompt and draw from streams of their own.
    """

    def __init__(self, options: GenerationConfig, seeds: Sequence[int]) -> None:
        self.options, self.copies = options, options.num_return_sequences
        self.temperature = max(options.temperature, float(np.finfo(np.float32).tiny))
        self.streams = [np.random.default_rng((seed, copy)) for seed in seeds for copy in range(self.copies)]
        self.scratch = np.empty((0, 0), np.float32)

    def select(self, rows: Ints) -> None:
        """Go on with these rows."""
        self.streams = [self.streams[row] for row in rows.tolist()]

    def draw(self, logits: Floats) -> Ints:
        """A token of each row, int64 (rows,); of a row that has nothing to draw from, any.

        Args:
            logits: float32 (rows, vocab_size).
        """
        points = np.array([stream.random() for stream in self.streams])[:, None]
        with np.errstate(invalid="ignore", over="ignore"):
            tokens, weights = self.candidates(logits)
            if self.options.min_p:
                weights[weights < self.options.min_p] = 0  # the likeliest token's weight is 1
            if tokens is None:
                return draw_from_all(weights, points)
            return np.take_along_axis(tokens, draw_from_few(weights, points), 1)[:, 0]

    def candidates(self, logits: Floats) -> tuple[Ints | None, Weights]:
        """Tokens that top_k and top_p leave, by their ids, and their weights, 0 where there is none.

        Both are (rows, most); or the tokens are None, and the weights are those of all.
        """
        top_k, top_p, min_p = self.options.top_k, self.options.top_p, self.options.min_p
        if top_k:
            tokens, values = above(logits, bound(logits, top_k))
            weights = self.weights_of(without_lower(values, top_k))
            keep_likeliest(weights, top_p, weights.sum(axis=1, keepdims=True))
            return tokens, weights
        if min_p and top_p == 1:
            tokens, values = above(logits, logits.max(1, keepdims=True) + self.temperature * math.log(min_p) - SLACK)
            return tokens, self.weights_of(values)
        everything = self.exponentials(logits)
        if top_p == 1:
            return None, everything
        total = everything.sum(axis=1, keepdims=True, dtype=np.float64)
        for count in LOOKS:
            tokens, values = above(logits, bound(logits, count))
            weights = self.weights_of(values)
            if (weights.sum(axis=1, keepdims=True) >= top_p * total).all():
                keep_likeliest(weights, top_p, total)
                return tokens, weights
        keep_likeliest(everything, top_p, total)
        return None, everything

    def weights_of(self, values: Floats) -> Doubles:
        """How likely tokens are, a row's likeliest 1; 0 where a value is -inf."""
        best = values.max(axis=1, keepdims=True)
        weights: Doubles = np.exp((values.astype(np.float64) - best) / self.temperature)
        return weights

    def exponentials(self, logits: Floats) -> Floats:
        """How likely each token is, the likeliest 1: (rows, at least vocab_size), 0 beyond; valid until the next."""
        rows, vocab_size = logits.shape
        if self.scratch.shape[0] < rows or self.scratch.shape[1] < vocab_size:
            self.scratch = np.zeros((rows, -(-vocab_size // BLOCK) * BLOCK), np.float32)
        kept = self.scratch[:rows]
        weights = kept[:, :vocab_size]
        np.subtract(logits, logits.max(axis=1, keepdims=True), out=weights)
        if self.temperature != 1:
            np.divide(weights, np.float32(self.temperature), out=weights)
        np.exp(weights, out=weights)
        return kept


def bound(logits: Floats, count: int) -> Floats:
    """A value of each row, (rows, 1), that at least `count` of its logits reach."""
    vocab_size = logits.shape[1]
    if count >= vocab_size:
        return np.full((len(logits), 1), LOWEST, np.float32)
    groups = max(4 * count, vocab_size // GROUP)
    if 2 * groups > vocab_size:
        largest, groups = logits, vocab_size
    else:
        width = vocab_size // groups
        # Group j holds tokens j, groups + j, ...: their largest is found row by row, without a stride.
        largest = logits[:, : width * groups].reshape(-1, width, groups).max(axis=1)  # (rows, groups)
    return np.partition(largest, groups - count, axis=1)[:, groups - count, None]


def above(logits: Floats, least: Floats) -> tuple[Ints, Floats]:
    """Tokens whose logits reach `least` (rows, 1) and are not -inf, by their ids, with their logits; both (rows, most).

    Rows that have fewer are filled with token 0 at -inf.
    """
    found = np.flatnonzero(logits >= np.maximum(least, LOWEST))  # many times as fast as nonzero of two dimensions
    rows, tokens = np.divmod(found, logits.shape[1])
    counts = np.bincount(rows, minlength=len(logits))
    begins = np.cumsum(counts) - counts
    places = np.arange(len(rows)) - begins[rows]
    shape = (len(logits), max(int(counts.max()), 1))
    ids, values = np.zeros(shape, np.int64), np.full(shape, -np.inf, np.float32)
    ids[rows, places], values[rows, places] = tokens, logits[rows, tokens]
    return ids, values


def without_lower(values: Floats, count: int) -> Floats:
    """The values, those below the `count` largest of a row made -inf; equal ones stay."""
    most = values.shape[1]
    if count < most:
        least = np.partition(values, most - count, axis=1)[:, most - count, None]
        values[values < least] = -np.inf
    return values


def keep_likeliest(weights: Weights, share: float, total: Doubles) -> None:
    """Make 0 all but the fewest largest weights of a row that add up to a share of `total` (rows, 1); equals stay."""
    if share == 1:
        return
    falling = np.sort(weights, axis=1)[:, ::-1]
    enough = falling.cumsum(axis=1, dtype=np.float64) >= share * total
    last = np.where(enough.any(axis=1), enough.argmax(axis=1), weights.shape[1] - 1)
    weights[weights < np.take_along_axis(falling, last[:, None], 1)] = 0


def draw_from_few(weights: Weights, points: Doubles) -> Ints:
    """The place in each row at which the weights, added up, pass a share of their sum, (rows, 1).

    Args:
        weights: (rows, n).
        points: (rows, 1), from 0 to below 1.
    """
    sums = weights.cumsum(axis=1, dtype=np.float64)
    total = sums[:, -1:]
    return passed_at(sums, np.minimum(points * total, np.nextafter(total, 0)))


def passed_at(sums: Doubles, points: Doubles) -> Ints:
    """The first place in each row where sums are above a point, (rows, 1)."""
    places: Ints = (sums <= points).sum(axis=1, keepdims=True)
    last: Ints = np.minimum(places, sums.shape[1] - 1)
    return last


def draw_from_all(weights: Weights, points: Doubles) -> Ints:
    """The same for all of a vocabulary, (rows,): first the block of tokens is found, then the token in it.

    Args:
        weights: (rows, blocks * BLOCK).
        points: (rows, 1), from 0 to below 1.
    """
    blocks = weights.reshape(len(weights), -1, BLOCK)
    each = np.arange(len(weights))
    sums = blocks.sum(axis=2).cumsum(axis=1, dtype=np.float64)  # (rows, blocks)
    total = sums[:, -1:]
    points = np.minimum(points * total, np.nextafter(total, 0))
    block = passed_at(sums, points)
    before = np.where(block > 0, np.take_along_axis(sums, np.maximum(block - 1, 0), 1), 0)
    within = blocks[each, block[:, 0]].cumsum(axis=1, dtype=np.float64)  # (rows, BLOCK)
    # Rounding may let a block's weights add up to a little less than its sum.
    place = passed_at(within, np.minimum(points - before, np.nextafter(within[:, -1:], 0)))
    tokens: Ints = block[:, 0] * BLOCK + place[:, 0]
    return tokens
