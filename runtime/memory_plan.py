"""How much memory an artifact takes for so many rows of so many tokens, and whether that much is free.

Figures of engines are exact but for what a library keeps for itself; those of ONNX Runtime are the least that it can do
with, so that nothing is refused that would have run.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

from edgeformer.runtime.bundle import Artifact, Manifest
from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.errors import BackendUnavailableError, NotEnoughMemoryError, OptionError
from edgeformer.runtime.names import Dims, Sizes

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
ALIGNMENT = 256  # bytes, of every tensor on a GPU
USUAL = 512  # tokens of a row or a source, where nothing says how many: never a model's full context
ON_GPU = ("tensorrt", "ort-cuda")  # backends whose artifacts lie in a GPU's memory
Elements = dict[str, int]  # how many numbers a tensor of each name has
CACHE_LAYER_SINCE = (10, 15)  # TensorRT; before, only our own plugin writes caches in place


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What is computed together: rows, tokens that each holds at most, tokens of the longest source; 0 for none."""

    batch: int
    capacity: int
    source_len: int


@dataclasses.dataclass(frozen=True, slots=True)
class Free:
    """Bytes that are free, and of what: `GPU memory`, `memory`, or `memory that CPU and GPU share`."""

    bytes: int
    of: str


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


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a load needs, what is free, and the most that would fit.

    Attributes:
        artifact: its name.
        load: what was asked for.
        needs: bytes, by what they are for.
        free: None where it is not known.
        largest_batch: rows of that capacity that fit, 0 where not one does; None where nothing is known to be free.
        largest_capacity: tokens that each of so many rows could hold; of an encoder, that each could read.
    """

    artifact: str
    load: Load
    needs: Needs
    free: Free | None
    largest_batch: int | None
    largest_capacity: int | None

    @property
    def fits(self) -> bool:
        return self.free is None or self.needs.total <= self.free.bytes


def plan_memory(
    manifest: Manifest,
    artifact: Artifact,
    *,
    batch: int = 1,
    capacity: int | None = None,
    source_len: int | None = None,
    free: Free | None = None,
    loaded: bool = False,
) -> MemoryPlan:
    """Plan an artifact's memory.

    Args:
        manifest: of its bundle.
        artifact: which is not loaded for it.
        batch: rows, beams counted one by one.
        capacity: tokens that a row holds; the engine's, or 512 where the model has more positions.
        source_len: tokens of the longest source; the engine's most, or 512 as well.
        free: what there is; this machine is asked where it is None.
        loaded: whether the artifact is loaded already, so that its weights and activations have what they need.

    Raises:
        OptionError: a number below 1, or beyond the model or engine.
    """
    load = the_load(manifest, artifact, batch, capacity, source_len)
    free = free or free_memory(artifact)

    def needs(**changes: int) -> Needs:
        found = needed(manifest, artifact, dataclasses.replace(load, **changes))
        return dataclasses.replace(found, weights=0, activations=0) if loaded else found

    if free is None:
        return MemoryPlan(artifact.name, load, needs(), None, None, None)
    there = free.bytes

    most = most_rows(artifact)
    tokens = "capacity" if load.capacity else "source_len"
    return MemoryPlan(
        artifact.name,
        load,
        needs(),
        free,
        largest_batch=largest(lambda batch: needs(batch=batch).total <= there, most or 1 << 20),
        largest_capacity=largest(lambda count: needs(**{tokens: count}).total <= there, max_tokens(manifest, artifact)),
    )


def the_load(manifest: Manifest, artifact: Artifact, batch: int, capacity: int | None, source_len: int | None) -> Load:
    """What is asked for, with what follows from the artifact where nothing is.

    Raises:
        OptionError: a number below 1, or beyond the model or engine, or without meaning for its kind.
    """
    of, most = f"artifact {artifact.name}", most_of(manifest, artifact)
    if capacity and not most["capacity"]:
        raise OptionError(f"capacity is {capacity}, {of} keeps no cache: source_len is what it reads")
    if source_len and not most["source_len"]:
        raise OptionError(f"source_len is {source_len}, {of} reads no source: its prompts count as capacity")
    given = {"batch": batch, "capacity": capacity, "source_len": source_len}
    usual = {name: longest if artifact.engine else min(longest or 0, USUAL) for name, longest in most.items()}
    load = {name: value if value is not None else usual[name] or 0 for name, value in given.items()}
    for name, value in load.items():
        longest = most[name]
        if value < 1 and longest != 0:
            raise OptionError(f"{name} is {value}, expected at least 1")
        if longest is not None and value > longest:
            raise OptionError(f"{name} is {value}, {of} takes up to {longest}")
    return Load(**load)


def most_of(manifest: Manifest, artifact: Artifact) -> dict[str, int | None]:
    """The most rows, tokens of a row, and tokens of a source: None where only memory bounds them, 0 for none."""
    sizes, engine, alone = manifest.sizes, artifact.engine, manifest.kind == "encoder"
    capacity = 0 if alone else engine.capacity if engine else sizes.max_positions
    source_len = sizes.max_positions if alone else sizes.max_source_positions
    if engine and source_len:
        source_len = min(profile["source_len"][2] for profile in engine.profiles["encoder"])
    return {"batch": most_rows(artifact), "capacity": capacity, "source_len": source_len}


def max_tokens(manifest: Manifest, artifact: Artifact) -> int:
    """The most tokens that a row holds, or that an encoder reads."""
    most = most_of(manifest, artifact)
    return most["capacity"] or most["source_len"] or 0


def most_rows(artifact: Artifact) -> int | None:
    """The most rows that an engine takes; None where only memory bounds them."""
    if artifact.engine is None:
        return None
    return min(profile["batch"][2] for profiles in artifact.engine.profiles.values() for profile in profiles)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits; 0 where none does. What fits must fit with less as well."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


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


def cache_item(artifact: Artifact) -> int:
    """Bytes of a number in a cache."""
    if artifact.engine is not None:
        return ITEM_BYTES[artifact.engine.dtype]
    return 2 if artifact.backend == "ort-cuda" else 4


def encoder_io(record: EncoderRecord, rows: int, source_len: int, wanted: int = 1) -> tuple[Elements, Elements]:
    """How many numbers each input and each output of an encoder has."""
    extents = {"batch": rows, "source_len": source_len, "n": wanted}

    def count(dims: Dims) -> int:
        return math.prod(dim if isinstance(dim, int) else extents[dim] for dim in dims)

    given, found = record.inputs(), record.outputs()
    return {name: count(dims) for name, dims in given.items()}, {name: count(dims) for name, dims in found.items()}


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


def free_memory(artifact: Artifact) -> Free | None:
    """What is free for an artifact on this machine: of the GPU for one that runs there; None where nobody says."""
    if artifact.backend not in ON_GPU:
        available = available_memory()
        return None if available is None else Free(available, "memory")
    from edgeformer.runtime.backends.tensorrt.driver import open_device

    try:
        device = open_device()
    except BackendUnavailableError:
        return None
    available = available_memory() if device.integrated else None
    if available is not None:  # the driver does not count what the kernel would give back of its file caches
        return Free(available, "memory that CPU and GPU share")
    return Free(device.free_memory()[0], f"GPU memory of {device.name}")


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of the host's memory that programs can have; None where the system does not say."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", meminfo.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def require(plan: MemoryPlan) -> None:
    """Refuse what does not fit, before anything is allocated.

    Raises:
        NotEnoughMemoryError: with what is needed, what is free, and the most that would fit.
    """
    if not plan.fits and plan.free is not None:
        raise NotEnoughMemoryError(refusal(plan, plan.free))


def refusal(plan: MemoryPlan, free: Free) -> str:
    load, needs = plan.load, plan.needs
    parts = {"weights": needs.weights, "caches": needs.caches, "sources": needs.sources,
             "activations": needs.activations, "inputs and outputs": needs.io}  # fmt: skip
    said = ", ".join(f"{name} {megabytes(count)}" for name, count in parts.items() if count)
    rows = f"{load.batch} rows" if load.batch > 1 else "one row"
    message = (
        f"artifact {plan.artifact} needs {megabytes(needs.total)} for {rows} of {load.capacity or load.source_len} "
        f"tokens ({said}), {megabytes(free.bytes)} of {free.of} are free"
    )
    if plan.largest_batch:
        return f"{message}: {plan.largest_batch} rows would fit"
    if plan.largest_capacity:
        return f"{message}: {plan.largest_capacity} tokens a row would fit"
    return f"{message}: end other programs, or take an artifact that stores weights in fewer bits"


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
