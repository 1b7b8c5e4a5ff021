"""What ends for lack of memory, said to the person who asked for too much at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgeformer.runtime.errors import NotEnoughMemoryError


@contextmanager
def enough_memory(inputs: int) -> Iterator[None]:
    """Within it, memory that cannot be had is a NotEnoughMemoryError about so many inputs together."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if (
            isinstance(error, RuntimeError) and "alloc" not in str(error).lower()
        ):  # ONNX Runtime's has no class of its own
            raise
        several = f"{inputs} inputs together do" if inputs > 1 else "one input does"
        fewer = "give a smaller batch_size, " if inputs > 1 else "ask for "
        raise NotEnoughMemoryError(
            f"{several} not fit into the memory that is free ({error}): {fewer}fewer beams or fewer new tokens"
        ) from error
