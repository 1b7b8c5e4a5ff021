"""What a device has: memory, bandwidth, dense arithmetic, and what edgeformer builds for it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping

from edgeformer.runtime.errors import OptionError

THIS = "this"


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A row of the table. What no document was found for is None, or missing, and shown as unknown.

    Attributes:
        name: what `edgeformer plan --device` takes.
        title: for people.
        targets: names in the table of targets, the one that is planned for by default first.
        memory: bytes, as the document names it with a billion to the GB.
        reserve: bytes of it that the system, a driver and libraries keep: this project's assumption.
        bandwidth: peak bytes a second of its memory.
        arithmetic: peak operations a second by precision (fp32, fp16, int8), dense: without sparsity.
        compute_capability: of its GPU, such as 8.7; empty where it has none that is used.
        shared: whether CPU and GPU share the memory.
        modes: power modes, and which the figures are of.
        source: documents, and what they state.
        rates: bytes a second by the bytes that are read over and over, where that was measured: caches hold what is
            small.
    """

    name: str
    title: str
    targets: tuple[str, ...]
    memory: int | None
    reserve: int
    bandwidth: float | None
    arithmetic: Mapping[str, float]
    source: str
    compute_capability: str = ""
    shared: bool = False
    modes: str = ""
    rates: Mapping[int, float] = dataclasses.field(default_factory=dict)

    @property
    def usable(self) -> int | None:
        """Bytes that a model can have; None where the memory is not known."""
        return None if self.memory is None else self.memory - self.reserve

    def bandwidth_for(self, size: int) -> float | None:
        """Bytes a second of something of this size."""
        return self.rates[min(self.rates, key=lambda known: abs(known - size))] if self.rates else self.bandwidth


def find_device(name: str, devices: Mapping[str, Device]) -> Device:
    """The device of this name.

    Raises:
        OptionError: there is none; the nearest and all that are known are named.
    """
    if name in devices:
        return devices[name]
    near = difflib.get_close_matches(name, devices, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise OptionError(f"--device is {name!r}, which is not in the table{hint} Known: {', '.join([*devices, THIS])}")


def arithmetic_of(device: Device, backend: str) -> float | None:
    """Operations a second of matrix products, None where they are not known.

    On GPUs weights in codes are multiplied in 16 bits. On CPUs the figure of float32 stands for all precisions, and
    kernels for codes may exceed it.
    """
    return device.arithmetic.get("fp32" if backend == "ort-cpu" else "fp16")
