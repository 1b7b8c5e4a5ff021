"""Whether a checkpoint can be exported in the memory that is here, told before any of it is read."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError

from edgeformer.models.weight_files import PICKLED, count_numbers, weight_paths
from edgeformer.runtime.errors import NotEnoughMemoryError
from edgeformer.runtime.machine_memory import available_memory

# Bytes for each weight of a checkpoint: the model in float32, and the graphs' weights in ONNX Runtime beside it, while
# one is compared with the other.
BYTES_EACH = 4 + 4


def require_memory(checkpoint: Path) -> None:
    """Refuse a checkpoint that is too large to be exported here.

    Raises:
        NotEnoughMemoryError: with what is needed and what there is.
        CheckpointError: the list of shards is damaged.
    """
    available, pickles, weights = available_memory(), pickled_bytes(checkpoint), count_weights(checkpoint)
    needed = weights * BYTES_EACH + pickles  # pickles are read whole
    if available is None or needed <= available:
        return
    raise NotEnoughMemoryError(
        f"the export of {checkpoint} needs {gigabytes(needed)} of memory, for {weights / 1e9:.2f} billion weights in "
        f"float32 and once more in ONNX Runtime, to compare with; {gigabytes(available)} are available: export where "
        "there is more; the bundle and its artifacts run elsewhere"
    )


def count_weights(checkpoint: Path) -> int:
    """Weights in all files: by the headers of safetensors; by the size of pickles, as if all were of two bytes."""
    if pickles := pickled_bytes(checkpoint):
        return pickles // 2
    try:
        return sum(map(count_numbers, weight_paths(checkpoint)))
    except (SafetensorError, OSError):
        return 0  # told when they are read


def pickled_bytes(checkpoint: Path) -> int:
    return sum(path.stat().st_size for path in weight_paths(checkpoint) if path.suffix == Path(PICKLED).suffix)


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
