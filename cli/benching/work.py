"""What a step and a first token must at least read and compute: weights, caches, multiplications and additions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgeformer.cli.benching.graph_weights import Weights, weights_of
from edgeformer.cli.benching.grid import Cell
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.loading import PORTABLE
from edgeformer.runtime.memory_needs import cache_item


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Of one step of a batch, or of its first token.

    Attributes:
        bytes: read at least once.
        weight_bytes: those of them that are weights.
        flops: multiplications and additions of the matrix products with weights; attention's own are left out.
    """

    bytes: int
    weight_bytes: int
    flops: int


def role_weights(bundle: Bundle, artifact: Artifact) -> dict[str, Weights]:
    """Of each graph: elements as the portable graphs have them, bytes as the artifact holds them."""
    vocab_size, portable = bundle.manifest.sizes.vocab_size, bundle.artifact(PORTABLE) or artifact
    found = {}
    for role, path in artifact.graphs.items():
        if role not in portable.graphs:  # it computes tables or picks rows, now and then
            continue
        if not portable.graphs[role].endswith(".onnx"):
            return {}
        counted = weights_of(bundle.folder / portable.graphs[role], vocab_size)
        held = bytes_of(bundle.folder / path, vocab_size)
        found[role] = dataclasses.replace(counted, bytes=held)
    return found


def bytes_of(graph: Path, vocab_size: int) -> int:
    """Of a graph's weights; an engine's plan is little else."""
    return weights_of(graph, vocab_size).bytes if graph.suffix == ".onnx" else graph.stat().st_size


def step_work(
    bundle: Bundle, artifact: Artifact, weights: dict[str, Weights], cell: Cell, tokens: float
) -> Work | None:
    """One step of a batch, when rows have half of their new tokens.

    Args:
        tokens: that a row gets, on average.
    """
    decoder = weights.get("decoder")
    if decoder is None:
        return None
    sizes, rows = bundle.manifest.sizes, cell.batch * cell.config.num_beams
    length = (cell.prompt or 0) + tokens / 2
    caches = int(2 * sizes.num_layers * sizes.num_kv_heads * sizes.head_dim * cache_item(artifact) * rows * length)
    return Work(decoder.bytes + caches, decoder.bytes, 2 * decoder.count * rows)


def first_work(weights: dict[str, Weights], cell: Cell) -> Work | None:
    """The prompts and one token of each: None where the prompts' lengths are not one number."""
    decoder, encoder = weights.get("decoder"), weights.get("encoder")
    if cell.prompt is None or not weights:
        return None
    given, rows = cell.batch * cell.prompt, cell.batch * cell.config.num_beams
    size = sum(one.bytes for one in weights.values())
    if encoder is None and decoder is not None:  # a language model: its vocabulary is computed for last tokens alone
        return Work(size, size, 2 * ((decoder.count - decoder.head) * given + decoder.head * cell.batch))
    read, written = (encoder.count * given if encoder else 0), (decoder.count * rows if decoder else 0)
    return Work(size, size, 2 * (read + written))
