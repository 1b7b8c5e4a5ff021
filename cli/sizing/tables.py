"""A plan in words, and the table of devices for docs/sizing.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edgeformer.cli.printing import size
from edgeformer.cli.sizing.device_rows import DEVICES
from edgeformer.cli.sizing.devices import Device
from edgeformer.cli.sizing.planning import Question, Sized
from edgeformer.cli.sizing.roofline import Bound

UNKNOWN = "unknown"
MEMORY = ("precision", "weights", "a token", "caches", "activations", "total", "fits", "tokens, 1 row",
          "tokens, 8 rows", "rows")  # fmt: skip
SPEED = ("precision", "tokens/s at most", "expected", "bound by", "first token at least")
CALLS = ("precision", "texts/s at most", "expected", "bound by")
MEMORY_LEGEND = (
    "a token: what it takes in a row's caches; tokens and rows: the most that would fit, rows of the capacity asked for"
)


def number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def model_line(question: Question, from_config: bool) -> str:
    shape, sizes = question.shape, question.shape.sizes
    counted = "by its config.json" if from_config else "by its graphs"
    return (
        f"{shape.model_type}, {shape.kind}, {shape.parameters / 1e6:.1f} million weights {counted}, "
        f"{sizes.max_positions} positions at most"
    )


def device_line(question: Question) -> str:
    device, free = question.device, question.free
    memory = UNKNOWN if device.memory is None else size(device.memory)
    room = f"{size(free.bytes)} for a model ({free.of})" if free else "room for a model unknown: say --free-memory"
    bandwidth = UNKNOWN if device.bandwidth is None else f"{device.bandwidth / 1e9:.0f} GB/s"
    rates = ", ".join(f"{kind} {number(rate / 1e12)}" for kind, rate in device.arithmetic.items()) or UNKNOWN
    modes = f"; power modes: {device.modes}" if device.modes else ""
    return (
        f"{device.title}: memory {memory}, {room}; {bandwidth}; tera-operations a second: {rates}{modes}; "
        f"as {question.target.name}"
    )


def load_line(question: Question) -> str:
    load = question.load
    tokens = f"{load.capacity} tokens each" if load.capacity else f"{load.source_len} tokens each"
    source = f", sources of {load.source_len}" if load.capacity and load.source_len else ""
    return f"{load.batch} row{'s' if load.batch > 1 else ''} of {tokens}{source}"


def memory_row(plan: Sized) -> tuple[str, ...]:
    needs, capacities = plan.needs, plan.largest_capacity or {}
    return (
        plan.precision + (" (built)" if plan.built else ""),
        size(needs.weights),
        size(plan.cache_per_token) if plan.cache_per_token else "-",
        size(needs.caches + needs.sources),
        size(needs.activations),
        size(needs.total),
        {None: UNKNOWN, True: "yes", False: "NO"}[plan.fits],
        *(known(capacities.get(rows)) for rows in (1, 8)),
        known(plan.largest_batch),
    )


def speed_row(plan: Sized) -> tuple[str, ...]:
    if plan.speed.step is None:
        return call_row(plan)
    low, high, most = plan.speed.tokens_per_second(plan.load.batch)
    return (
        plan.precision,
        UNKNOWN if most is None else number(most),
        UNKNOWN if low is None or high is None else f"{number(low)}-{number(high)}",
        plan.speed.step.by,
        milliseconds(plan.speed.first),
    )


def call_row(plan: Sized) -> tuple[str, ...]:
    bound, efficiency, rows = plan.speed.first, plan.speed.efficiency, plan.load.batch
    if bound.seconds is None or bound.one_after_the_other is None:
        return (plan.precision, UNKNOWN, UNKNOWN, bound.by)
    usual = rows / bound.one_after_the_other
    expected = f"{number(usual * efficiency.low)}-{number(usual * efficiency.high)}"
    return (plan.precision, UNKNOWN if bound.exceeded else number(rows / bound.seconds), expected, bound.by)


def milliseconds(bound: Bound) -> str:
    """At least; about, where the arithmetic may be exceeded; reading alone says little of a prompt."""
    if bound.computing is None:
        return UNKNOWN
    return f"{'~' if bound.exceeded else ''}{number(1e3 * max(bound.computing, bound.reading or 0))} ms"


def speed_legend(question: Question, plans: Sequence[Sized]) -> Iterator[str]:
    efficiency, load = plans[0].speed.efficiency, question.load
    share = f"{efficiency.low:.0%} to {efficiency.high:.0%}"
    yield (
        "at most: by the device's peaks, as if reading hid behind computing; expected: "
        f"{share} of the speed at which one follows the other, {efficiency.source}"
    )
    if question.shape.kind == "encoder":
        return
    before = f"a source of {load.source_len}" if load.source_len else f"a prompt of {max(load.capacity // 2, 1)}"
    yield f"tokens/s: of all rows together, when caches are half full; first token: after {before}"


def describe_device(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "title": device.title,
        "memory": device.memory,
        "reserve": device.reserve,
        "bandwidth": device.bandwidth,
        "arithmetic": dict(device.arithmetic),
        "targets": list(device.targets),
        "compute_capability": device.compute_capability or None,
        "shared_memory": device.shared,
        "modes": device.modes or None,
        "source": device.source,
    }


def devices_markdown() -> str:
    """The table of docs/sizing.md."""
    columns = ("device", "", "memory, less", "GB/s", "fp32", "fp16", "int8", "targets", "source")
    lines = [row_of(columns), row_of(["---"] * len(columns))]
    for device in DEVICES.values():
        rates = [number(device.arithmetic[kind] / 1e12) if kind in device.arithmetic else UNKNOWN for kind in
                 ("fp32", "fp16", "int8")]  # fmt: skip
        memory = UNKNOWN if device.memory is None else f"{device.memory / 1e9:.0f} GB, {device.reserve / 1e9:.1f}"
        bandwidth = UNKNOWN if device.bandwidth is None else number(device.bandwidth / 1e9)
        title = f"{device.title}{f' ({device.modes})' if device.modes else ''}"
        targets = ", ".join(f"`{name}`" for name in device.targets)
        lines.append(row_of([f"`{device.name}`", title, memory, bandwidth, *rates, targets, device.source]))
    return "\n".join(lines)


def row_of(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
