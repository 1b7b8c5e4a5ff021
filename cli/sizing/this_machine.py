"""This machine's CPU as a device: measured as `edgeformer bench` does."""

from __future__ import annotations

from edgeformer.cli.benching.ceilings import measure_ceilings
from edgeformer.cli.machine import this_machine
from edgeformer.cli.sizing.devices import THIS, Device
from edgeformer.cli.sizing.shapes import Shape
from edgeformer.cli.sizing.stored import read_bytes
from edgeformer.runtime.machine_memory import available_memory

TARGET, PRECISIONS = "ort-cpu", ("fp32", "int8", "int4")


def this_device(shape: Shape, threads: int | None = None) -> Device:
    """Measure what it reads, from memory and from arrays as large as the model's weights, and what it computes.

    Raises:
        ProcessError: the measurement failed.
    """
    machine = this_machine()
    threads = threads or machine.cores
    sizes = {read_bytes(shape, role, TARGET, precision) for role in shape.roles.values() for precision in PRECISIONS}
    found = measure_ceilings(threads, sorted(sizes))
    return Device(
        name=THIS,
        title=f"{machine.cpu}, {threads} thread{'s' if threads > 1 else ''}",
        targets=(TARGET,),
        memory=available_memory(),
        reserve=0,
        bandwidth=found.read_bytes_per_second[max(found.read_bytes_per_second)],
        arithmetic={"fp32": found.flops_per_second},
        source="measured now, as `edgeformer bench` measures it; its memory is what is available now",
        rates=found.read_bytes_per_second,
    )
