"""How many cores a model may use, and how its threads wait for work."""

from __future__ import annotations

import dataclasses
import os
from typing import Literal, get_args

from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.given import check_whole

Spin = Literal["steps", "always", "never"]
SPINS: tuple[Spin, ...] = get_args(Spin)


@dataclasses.dataclass(frozen=True, slots=True)
class Cores:
    """What `load` was asked for.

    Attributes:
        threads: cores to use, None for all that this process may use.
        spin: whether threads that wait for work keep their core busy: while a step runs (`steps`), between steps as
            well (`always`), or not at all (`never`), which leaves the core to others and takes longer to wake.

    Raises:
        OptionError: there are no such threads; `spin` is none of the three.
    """

    threads: int | None = None
    spin: Spin = "steps"

    def __post_init__(self) -> None:
        check_threads(self.threads)
        if self.spin not in SPINS:
            raise OptionError(f"spin is {self.spin!r}, expected one of {', '.join(SPINS)}")

    @property
    def count(self) -> int:
        """How many threads compute."""
        return self.threads or usable_cores()


def usable_cores() -> int:
    """Cores that this process may use: a container or taskset may have given it fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_threads(threads: int | None) -> None:
    """Refuse a number of cores that is none, or that there are not to use: threads would only wait for each other.

    Raises:
        OptionError: naming both.
    """
    if threads is None:
        return
    check_whole("threads", threads)
    if threads < 1:
        raise OptionError(f"threads is {threads}, expected at least 1")
    if threads > (cores := usable_cores()):
        has = os.cpu_count() or cores
        limit = f"this machine has {has} cores" if cores == has else f"of {has} cores this process may use {cores}"
        raise OptionError(f"threads is {threads}, {limit}: give at most {cores}")
