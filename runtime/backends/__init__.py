"""What runs an artifact: a small class behind a Protocol, found by entry point, its vendor library imported on use."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.errors import BackendUnavailableError

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
ENTRY_POINTS = "edgeformer.backends"


class Rows(Protocol):
    """Rows that are being decoded: their caches, and the sources that they attend to."""

    cache_lengths: Ints

    def step(self, input_ids: Ints, lengths: Ints | None = None, logits_at: Ints | None = None) -> Floats:
        """Add new tokens to each row.

        Args:
            input_ids: (batch, q_len), right-padded with any id.
            lengths: (batch,), how many of them are real; q_len where it is None.
            logits_at: (batch, n), positions in q_len whose logits are wanted; each row's last where it is None.

        Returns:
            logits, float32 (batch, n, vocab_size), valid until the next step.
        """

    def select(self, rows: Ints, sources: Ints | None = None) -> None:
        """Go on with these rows, in this order; a row may be taken more than once.

        Args:
            rows: (new_batch,), indices of present rows.
            sources: (new_sources,), indices of the sources to keep; None keeps all. new_batch is a multiple of the
                number of sources, and each source serves as many consecutive rows as any other. Without meaning for a
                language model, whose rows have none.
        """

    def close(self) -> None:
        """Give the memory back; the rows, and logits that they returned, are not to be used any more."""


@runtime_checkable
class ChoosingRows(Rows, Protocol):
    """Rows that can choose the likeliest token where the logits are: a step moves one id a row, not the vocabulary."""

    def step_next(self, input_ids: Ints) -> tuple[Ints, Floats]:
        """Add new tokens to each row, as `step` does, and choose what follows its last one.

        Args:
            input_ids: (batch, q_len), all of them real.

        Returns:
            the likeliest token of each row, int64 (batch,), the first of equals, and its log-probability, float32
            (batch,); both the caller's to keep.
        """


class RewindingRows(Rows, Protocol):
    """Rows that can forget their last tokens: to guess some costs nothing but the step that computes them."""

    def rewind(self, lengths: Ints) -> None:
        """Forget what each row holds beyond so many tokens, (batch,)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a loaded artifact takes; None where only memory bounds it.

    Attributes:
        batch: rows that are computed together, beams counted one by one.
        capacity: tokens that a row holds.
        source_len: tokens of a source.
    """

    batch: int | None = None
    capacity: int | None = None
    source_len: int | None = None


class Executor(Protocol):
    """A loaded artifact; its sessions may run in several threads at once."""

    def start(self, sources: Sequence[Sequence[int]], capacity: int) -> Rows:
        """Read the sources of an encoder-decoder; one row for each, with an empty cache.

        Args:
            sources: ids of each source, at least one each.
            capacity: the most tokens that a row will hold; memory is taken as rows grow.
        """

    def start_empty(self, batch: int, capacity: int) -> Rows:
        """Rows of a language model, with empty caches.

        Args:
            batch: how many, at least 1.
            capacity: as in `start`.
        """


@runtime_checkable
class BoundedExecutor(Executor, Protocol):
    """A loaded artifact whose shapes were bounded when it was built, as an engine's are."""

    bounds: Bounds


@runtime_checkable
class RewindingExecutor(Executor, Protocol):
    """A loaded artifact whose rows can be rewound.

    Attributes:
        step_noise: how much a logit may depend on the number of tokens in a step, as a share of the distance between
            the largest and the least: kernels add in another order, and quantized activations make more of it.
    """

    step_noise: float


class Backend(Protocol):
    """Runs artifacts of one kind."""

    name: str

    def unavailable(self, artifact: Artifact | None = None) -> str | None:
        """Why it cannot run here, or not this artifact, and what to do about it; None if it can."""

    def load(self, bundle: Bundle, artifact: Artifact, cores: Cores) -> Executor:
        """Load an artifact, to run on these cores."""


def bounds_of(executor: Executor) -> Bounds:
    """What an executor takes at most."""
    return executor.bounds if isinstance(executor, BoundedExecutor) else Bounds()


def step_noise_of(executor: Executor) -> float | None:
    """An executor's `step_noise`, None where its rows cannot be rewound."""
    return executor.step_noise if isinstance(executor, RewindingExecutor) else None


def backends() -> dict[str, Backend]:
    """Every installed backend, by name, without importing a vendor library."""
    return {point.name: point.load()() for point in entry_points(group=ENTRY_POINTS)}


def lacking(artifact: Artifact) -> str | None:
    """Why an artifact cannot run here and what to do about it, or None if it can."""
    known = backends()
    if artifact.backend not in known:
        return f"no backend {artifact.backend!r} is installed; installed: {', '.join(sorted(known)) or 'none'}"
    return known[artifact.backend].unavailable(artifact)


def backend_of(artifact: Artifact) -> Backend:
    """The backend that runs an artifact.

    Raises:
        BackendUnavailableError: it is not installed, or lacks a library.
    """
    if reason := lacking(artifact):
        raise BackendUnavailableError(f"artifact {artifact.name} cannot run here: {reason}")
    return backends()[artifact.backend]


def older(version: str, least: str) -> bool:
    """Whether a version, such as 1.23.2, comes before another."""

    def numbers(text: str) -> list[int]:
        return [int(digits) for part in text.split(".") if (digits := "".join(c for c in part if c.isdigit()))]

    return numbers(version) < numbers(least)
