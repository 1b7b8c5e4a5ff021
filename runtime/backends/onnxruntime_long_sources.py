"""Encoders of sources short and long: where scores of all tokens with all would be many, they are made in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeformer.runtime import names
from edgeformer.runtime.backends import Ints
from edgeformer.runtime.backends.onnxruntime_sessions import Sessions

if TYPE_CHECKING:
    import onnxruntime

SHORT = 512  # tokens of a source: models that read no more have one graph
MOST_SCORES = 1 << 25  # that are held at once by the graph without loops
BLOCK_SCORES = 1 << 24  # and by that with loops, where a source allows it
LEAST_BLOCK = 16  # queries: fewer would not keep the cores busy


class EncoderSessions:
    """The sessions of an artifact's encoder: one for all but long sources, and another that is opened when it is used.

    Args:
        sessions: opens them.
        short: the one for all but long sources, opened.
        num_heads: of each of the encoder's attentions.
    """

    def __init__(self, sessions: Sessions, short: onnxruntime.InferenceSession, num_heads: int) -> None:
        self.sessions, self.short, self.num_heads = sessions, short, num_heads
        self.long: onnxruntime.InferenceSession | None = None

    def of(self, batch: int, source_len: int) -> tuple[onnxruntime.InferenceSession, dict[str, Ints]]:
        """The session that reads a batch padded to such a length, and what it is given beside the encoder's inputs."""
        of_query = batch * self.num_heads * source_len
        if of_query * source_len <= MOST_SCORES or names.LONG_ENCODER not in self.sessions.graphs:
            return self.short, {}
        if self.long is None:
            self.long = self.sessions.open(names.LONG_ENCODER)
        block = min(source_len, max(LEAST_BLOCK, BLOCK_SCORES // of_query))
        return self.long, {names.QUERY_BLOCK: np.array([block], np.int64)}
