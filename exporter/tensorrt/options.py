"""What can be asked of an engine."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from edgeformer.runtime.bundle import Limits
from edgeformer.runtime.errors import OptionError

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclasses.dataclass(frozen=True, slots=True)
class EngineOptions:
    """What `edgeformer optimize` was asked for; None is a default that follows from the model.

    Attributes:
        batch, q_len, source_len: least, usual and most of the dimension of that name.
        capacity: the most tokens that a row's cache holds.
        compute_capabilities: GPUs to build for, such as 8.9; `portable` alone for all that the target has.
        attention: its form: native, plugin, plugin-aot or primitive.
        workspace: the most memory that a layer may use for itself, in bytes.
        timing_cache: file of measured timings, read where it exists, and written.
        strip_weights: leave the weights out of the plans; the graphs stay beside them, to put the weights back.
        version_compatible: let the lean runtime of the version that built the plans run them.
        hardware_compatible: let later GPUs run the plans.
        weight_streaming: let weights stay in the host's memory where the GPU's does not hold them.
        fp32_accumulation: let attention in fp16 sum in fp32; no kernel does it for every shape.
        opt_level: how long to search for fast kernels, 0 to 5.
        allow_unfused: let an attention that no kernel computes fall back to several layers.
    """

    batch: Limits | None = None
    q_len: Limits | None = None
    source_len: Limits | None = None
    capacity: int | None = None
    compute_capabilities: tuple[str, ...] = ()
    attention: str | None = None
    workspace: int | None = None
    timing_cache: Path | None = None
    strip_weights: bool = False
    version_compatible: bool = False
    hardware_compatible: bool = False
    weight_streaming: bool = False
    fp32_accumulation: bool = False
    opt_level: int | None = None
    allow_unfused: bool = False

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given, as the command line spells them."""
        fields = dataclasses.fields(self)
        return tuple(flag(field.name) for field in fields if getattr(self, field.name) != field.default)


def flag(name: str) -> str:
    return {"compute_capabilities": "--compute-capability"}.get(name, f"--{name.replace('_', '-')}")


def parse_limits(option: str, text: str) -> Limits:
    """`1:8:64` is least, usual and most; one number is usual and most, from one.

    Raises:
        OptionError: it is something else.
    """
    parts = text.split(":")
    if len(parts) not in (1, 3) or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise OptionError(f"{option} is {text!r}, expected LEAST:USUAL:MOST, such as 1:8:64, or one number for 1:N:N")
    least, usual, most = map(int, ["1", *parts * 2] if len(parts) == 1 else parts)
    return least, usual, most


def parse_bytes(option: str, text: str) -> int:
    """A number of bytes: 1G, 512M.

    Raises:
        OptionError: it is something else.
    """
    found = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text.upper())
    if found is None or not int(found[1]):
        raise OptionError(f"{option} is {text!r}, expected a number of bytes, such as 512M or 2G")
    return int(found[1]) * UNITS[found[2]]
