"""Bytes that an artifact takes for so many rows of so many tokens.

Figures of engines are exact but for what a library keeps for itself; those of ONNX Runtime are the least that it can do
with, so that nothing is refused that would have run.
"""

from __future__ import annotations

import dataclasses
import math

from edgeformer.runtime.bundle import Artifact, Manifest
from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.names import Dims, Sizes

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
ALIGNMENT = 256  # bytes, of every tensor on a GPU
Elements = dict[str, int]  # how many numbers a tensor of each name has
CACHE_LAYER_SINCE = (10, 15)  # TensorRT; before, only our own plugin writes caches in place


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What is computed together: rows, tokens that each holds at most, tokens of the longest source; 0 for none."""

    batch: int
    capacity: int
    source_len: int


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that an artifact takes.

    Attributes:
        weights: of both graphs; none where an engine can stream them from the host.
        caches: keys and values of the rows' own tokens.
        sources: keys and values of their sources.
        activations: what graphs compute in.
        io: ids and lengths; logits, hidden states and embeddings.
    """

    weights: int
    caches: int
    sources: int
    activations: int
    io: int

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.sources + self.activations + self.io


def most_rows(artifact: Artifact) -> int | None:
    """The most rows that an engine takes; None where only memory bounds them."""
    if artifact.engine is None:
        return None
    return min(profile["batch"][2] for profiles in artifact.engine.profiles.values() for profile in profiles)


def needed(manifest: Manifest, artifact: Artifact, load: Load) -> Needs:
    """Bytes that an artifact takes for a load."""
    sizes, engine = manifest.sizes, artifact.engine
    weights = 0 if engine is not None and engine.streamable else weight_bytes(artifact)
    tensors, width = 2 * sizes.num_layers, sizes.num_heads * sizes.head_dim
    if manifest.encoder is not None:
        given, found = encoder_io(manifest.encoder, load.batch, load.source_len)
        activations = max(engine.memory.values(), default=0) if engine else 4 * load.batch * load.source_len * 6 * width
        return Needs(weights, 0, 0, activations, 8 * sum(given.values()) + 4 * sum(found.values()))
    item = cache_item(artifact)
    if engine is None:
        row, source = load.capacity * sizes.num_kv_heads * sizes.head_dim, load.source_len * width
        tokens = load.batch * load.source_len
        activations = 4 * tokens * 6 * width  # the encoder's: its input, queries, keys, values, and their sums
        io = 4 * load.batch * sizes.vocab_size + 8 * tokens
        return Needs(weights, item * tensors * load.batch * row, item * tensors * load.batch * source, activations, io)
    rows = row_count(load.batch, most_rows(artifact))
    caches = store_bytes(sizes, rows, sizes.num_kv_heads, load.capacity, item)
    source_len = source_bucket(load.source_len, load.source_len) if sizes.has_source else 0
    sources = store_bytes(sizes, rows, sizes.num_heads, source_len, item) if source_len else 0
    activations = max(engine.memory.values(), default=0)
    io = rows * (4 * sizes.vocab_size + 8 * load.source_len) + 16 * ALIGNMENT
    return Needs(weights, caches * (1 if in_place(artifact) else 2), sources, activations, io)


def encoder_io(record: EncoderRecord, rows: int, source_len: int, wanted: int = 1) -> tuple[Elements, Elements]:
    """How many numbers each input and each output of an encoder has."""
    extents = {"batch": rows, "source_len": source_len, "n": wanted}

    def count(dims: Dims) -> int:
        return math.prod(dim if isinstance(dim, int) else extents[dim] for dim in dims)

    given, found = record.inputs(), record.outputs()
    return {name: count(dims) for name, dims in given.items()}, {name: count(dims) for name, dims in found.items()}


def cache_item(artifact: Artifact) -> int:
    """Bytes of a number in a cache."""
    if artifact.engine is not None:
        return ITEM_BYTES[artifact.engine.dtype]
    return 2 if artifact.backend == "ort-cuda" else 4


def weight_bytes(artifact: Artifact) -> int:
    """Bytes of an artifact's graphs and weights, without what is there to be read by people."""
    return sum(record.bytes for path, record in artifact.files.items() if not path.endswith((".html", ".json")))


def in_place(artifact: Artifact) -> bool:
    """Whether an engine most likely writes its caches in place; once it is loaded, it can be asked."""
    engine = artifact.engine
    if engine is None or engine.module != "tensorrt":
        return True
    if engine.caches_in_place is not None:
        return engine.caches_in_place
    return tuple(map(int, engine.version.split(".")[:2])) >= CACHE_LAYER_SINCE


def row_count(batch: int, most: int | None) -> int:
    """Rows that memory is taken for: a power of two, so that a batch finds the memory of one like it again."""
    rows = 1 << (batch - 1).bit_length()
    return rows if most is None else min(rows, max(most, batch))


def source_bucket(source_len: int, most: int) -> int:
    """Length that sources are padded to: a power of two, so that captured graphs serve more than one length."""
    return min(max(8, 1 << (source_len - 1).bit_length()), most)


def store_lines(rows: int, heads: int, pitch: int) -> int:
    """Lines of `pitch` bytes for the heads of so many rows and of one to spare, until the next tensor may begin."""
    unit = ALIGNMENT // math.gcd(pitch, ALIGNMENT)
    return -(-(rows + 1) * heads // unit) * unit


def store_bytes(sizes: Sizes, rows: int, heads: int, length: int, item: int) -> int:
    """Bytes of keys and values of all layers on a GPU."""
    pitch = length * sizes.head_dim * item
    return 2 * sizes.num_layers * store_lines(rows, heads, pitch) * pitch
