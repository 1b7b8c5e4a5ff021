"""A model on a device, in each precision that a target offers: what it takes, the largest loads, bounds of speed.

What is not built yet is planned as an artifact of the size that it would have, by the memory plan that every load is
checked with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgeformer.cli.sizing import roofline
from edgeformer.cli.sizing.activations import activation_bytes
from edgeformer.cli.sizing.devices import Device, arithmetic_of
from edgeformer.cli.sizing.efficiency import Efficiency, efficiency_of
from edgeformer.cli.sizing.roofline import Bound, Work
from edgeformer.cli.sizing.shapes import Shape
from edgeformer.cli.sizing.stored import cache_item, weight_bytes
from edgeformer.runtime.bundle import Artifact, Engine, FileRecord, Manifest, Tokens
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.machine_memory import Free
from edgeformer.runtime.memory_needs import Load, Needs, needed
from edgeformer.runtime.memory_plan import USUAL, largest

if TYPE_CHECKING:
    from edgeformer.exporter.targets import Target

ROWS = (1, 8)  # batches whose largest capacity is told
MANY = 1 << 20
HALVES = ("fp16", "bf16")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}  # of caches; of all others float16


@dataclasses.dataclass(frozen=True, slots=True)
class Speed:
    """Bounds of speed, and what is to be expected.

    Attributes:
        first: what comes before the first token: reading the prompt or the source; of an encoder, a whole call.
        step: one token of every row, with caches half full; None of an encoder.
        efficiency: shares of the bound that were measured.
    """

    first: Bound
    step: Bound | None
    efficiency: Efficiency

    def tokens_per_second(self, batch: int) -> tuple[float | None, float | None, float | None]:
        """Of all rows together: the least and the most that is expected, and the bound."""
        if self.step is None or self.step.seconds is None or self.step.one_after_the_other is None:
            return None, None, None
        usual = batch / self.step.one_after_the_other
        return usual * self.efficiency.low, usual * self.efficiency.high, batch / self.step.seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Sized:
    """A precision.

    Attributes:
        precision: how weights are stored.
        built: the artifact that the bundle has of it; None where sizes are estimates.
        load: what was asked for.
        needs: bytes.
        cache_per_token: bytes that a token of a row takes in the caches; of a source's, in what the encoder made.
        free: bytes for it; None where nobody knows.
        largest_capacity: tokens a row, by rows; of an encoder, tokens that it reads. None where nobody knows.
        largest_batch: rows of the capacity that was asked for.
        building: bytes that a building process needs; None where nothing is built on the device.
    """

    precision: str
    built: str | None
    load: Load
    needs: Needs
    cache_per_token: int
    free: Free | None
    largest_capacity: Mapping[int, int] | None
    largest_batch: int | None
    building: int | None
    speed: Speed

    @property
    def fits(self) -> bool | None:
        return None if self.free is None else self.needs.total <= self.free.bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        shape: of the model.
        device, target: where it is to run, and as what.
        load: rows, tokens of a row, tokens of a source.
        free: bytes for it; None where the device's are not known.
        built: weights of those precisions of the target that are built already, with the artifacts' names.
    """

    shape: Shape
    device: Device
    target: Target
    load: Load
    free: Free | None
    built: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict)


def load_of(shape: Shape, batch: int, capacity: int | None, source_len: int | None) -> Load:
    """What is asked for; where nothing is, 512 tokens or what the model has.

    Raises:
        OptionError: a number below 1, beyond the model, or without meaning for its kind.
    """
    sizes, alone = shape.sizes, shape.kind == "encoder"
    most = {
        "batch": MANY,
        "capacity": 0 if alone else sizes.max_positions,
        "source_len": sizes.max_positions if alone else sizes.max_source_positions,
    }
    given = {"batch": batch, "capacity": capacity, "source_len": source_len}
    reasons = {
        "capacity": "an encoder keeps no cache: --source-len is what it reads",
        "source_len": "a language model reads no source: its prompts count as --capacity",
    }
    found = {}
    for name, value in given.items():
        option, longest = f"--{name.replace('_', '-')}", most[name]
        if value is not None and not longest:
            raise OptionError(f"{option} is {value}: {reasons[name]}")
        if value is not None and not 1 <= value <= longest:
            raise OptionError(f"{option} is {value}, expected 1 to {longest}")
        found[name] = min(longest, USUAL) if value is None else value
    return Load(**found)


def sized(question: Question) -> list[Sized]:
    """Each precision that the target offers."""
    return [size_precision(question, precision) for precision in precisions_of(question.target, question.device)]


def precisions_of(target: Target, device: Device) -> Iterator[str]:
    """Those that the target has on the device's GPU, and fuses attention in.

    `auto` lies between int8 and int4; what ONNX Runtime stores in 16 bits on a CPU takes the memory and time of fp32.
    """
    from edgeformer.exporter.targets.limits import UNFUSED_PRECISIONS, with_precision

    for precision in target.precisions:
        if precision == "auto" or (target.module and precision in UNFUSED_PRECISIONS):
            continue
        if target.backend == "ort-cpu" and precision in HALVES:
            continue
        if not target.compute_capabilities or device.compute_capability in with_precision(target, precision):
            yield precision


def size_precision(question: Question, precision: str) -> Sized:
    shape, load, free, target = question.shape, question.load, question.free, question.target
    name, weights = question.built.get(precision, (None, weight_bytes(shape, target.backend, precision)))

    def needs(**changes: int) -> Needs:
        return needs_of(shape, target, precision, weights, dataclasses.replace(load, **changes))

    capacities, rows = None, None
    if free is not None:
        there, sizes = free.bytes, shape.sizes
        tokens = "source_len" if shape.kind == "encoder" else "capacity"

        def fits(**changes: int) -> bool:
            return needs(**changes).total <= there

        capacities = {
            batch: largest(lambda count, batch=batch: fits(**{"batch": batch, tokens: count}), sizes.max_positions)  # type: ignore[misc]
            for batch in ROWS
        }
        rows = largest(lambda batch: fits(batch=batch), MANY)
    return Sized(
        precision=precision,
        built=name,
        load=load,
        needs=needs(),
        cache_per_token=cache_per_token(shape, target, precision),
        free=free,
        largest_capacity=capacities,
        largest_batch=rows,
        building=building_bytes(shape, target, weights),
        speed=speed(question, precision),
    )


def needs_of(shape: Shape, target: Target, precision: str, weights: int, load: Load) -> Needs:
    """The memory plan of an artifact that is not there."""
    manifest = Manifest(
        "", shape.model_type, shape.kind, shape.sizes, Tokens(0, 0, ()), {}, (), (), encoder=shape.encoder
    )  # fmt: skip
    engine = planned_engine(shape, target, precision, load) if target.backend == "tensorrt" else None
    artifact = Artifact(
        precision, target.name, target.backend, precision, {}, {"weights": FileRecord(weights, "")}, {}, {},
        engine=engine,
    )  # fmt: skip
    return needed(manifest, artifact, load)


def planned_engine(shape: Shape, target: Target, precision: str, load: Load) -> Engine:
    """An engine for exactly this load, as the commands of a recommendation build it."""
    limits: dict[str, Any] = {"batch": (1, load.batch, load.batch), "source_len": (1, 1, max(load.source_len, 1))}
    return Engine(
        module=target.module or "",
        version=(target.versions or ("0.0", ""))[0],
        compute_capabilities=(),
        platform="",
        graphs={},
        version_compatible=False,
        hardware_compatible=False,
        stripped=False,
        dtype=DTYPES.get(precision, "float16"),
        capacity=load.capacity,
        profiles=dict.fromkeys(shape.roles, (limits,)),
        memory={role: activation_bytes(shape, role, load) for role in shape.roles},
        caches_in_place=target.attention[0] != "primitive",
    )


def cache_per_token(shape: Shape, target: Target, precision: str) -> int:
    """Bytes of one token's keys and values in all layers; an encoder keeps none."""
    sizes, item = shape.sizes, cache_item(target.backend, precision)
    return 0 if shape.kind == "encoder" else 2 * sizes.num_layers * sizes.num_kv_heads * sizes.head_dim * item


def building_bytes(shape: Shape, target: Target, weights: int) -> int | None:
    """What a build on the device takes, each graph in turn; TensorRT builds for the GPU that it finds."""
    if target.module != "tensorrt":
        return None
    from edgeformer.exporter.tensorrt.memory import needed as build_needs

    return build_needs(weights // len(shape.roles))


def speed(question: Question, precision: str) -> Speed:
    shape, load, backend = question.shape, question.load, question.target.backend
    efficiency, arithmetic = efficiency_of(backend), arithmetic_of(question.device, backend)

    def of(work: Callable[..., Work], *arguments: int) -> Work:
        return work(shape, backend, precision, load.batch, *arguments)

    def bound(work: Work) -> Bound:
        exceeded = backend == "ort-cpu" and precision != "fp32"
        return roofline.bound(work, question.device.bandwidth_for(work.bytes), arithmetic, exceeded)

    if shape.kind == "encoder":
        return Speed(bound(of(roofline.source_work, load.source_len)), None, efficiency)
    half = max(load.capacity // 2, 1)
    step = of(roofline.step_work, half, load.source_len)
    if shape.sizes.has_source:
        first = of(roofline.source_work, load.source_len) + of(roofline.step_work, 1, load.source_len)
    else:
        first = of(roofline.prompt_work, half)
    return Speed(bound(first), bound(step), efficiency)
