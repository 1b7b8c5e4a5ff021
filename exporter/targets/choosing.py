"""A request against the table: what a row can't do is refused with the reason and the nearest that works."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence

from edgeformer.exporter.targets.rows import PORTABLE_SET, TARGETS, Target
from edgeformer.runtime.errors import TargetError
from edgeformer.runtime.names import Sizes


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What an artifact is to be.

    Attributes:
        target: the row.
        precision: how weights are stored.
        attention: the form of attention that its graphs get.
        compute_capabilities: GPUs that the engine is for; none means the one that builds it.
    """

    target: Target
    precision: str
    attention: str
    compute_capabilities: tuple[str, ...]


def find_target(name: str, precision: str | None = None) -> tuple[Target, str]:
    """The target of this name, and the precision to use.

    Raises:
        TargetError: there is no such target, or it has no such precision; the nearest that exists is named.
    """
    choice = choose_target(name, precision)
    return choice.target, choice.precision


def choose_target(
    name: str,
    precision: str | None = None,
    *,
    attention: str | None = None,
    compute_capabilities: Sequence[str] = (),
) -> Choice:
    """The row of this name, with all that an artifact for it needs decided.

    Args:
        name: a name of `TARGETS`.
        precision: how weights are stored; the row's first where it is None.
        attention: the form of attention; the row's first where it is None.
        compute_capabilities: GPUs that an engine is for, such as 8.9, or `portable` alone: all of the row's that have
            the precision. Nothing: portable for TensorRT for RTX, the GPU that builds it for TensorRT.

    Raises:
        TargetError: there is no such row, or it can't do this; the reason, and the nearest that works.
    """
    if name not in TARGETS:
        near = difflib.get_close_matches(name, TARGETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TargetError(f"there is no target {name!r}; known: {', '.join(TARGETS)}{hint}")
    target = TARGETS[name]
    precision = precision or target.precisions[0]
    if precision not in target.precisions:
        raise TargetError(f"target {name} has no precision {precision!r}; it has: {', '.join(target.precisions)}")
    attention = attention or target.attention[0]
    gpus = tuple(compute_capabilities)
    if gpus == (PORTABLE_SET,) or (not gpus and target.module == "tensorrt_rtx"):
        gpus = target.compute_capabilities
    return Choice(target, precision, attention, gpus)


def check_version(target: Target, version: str) -> None:
    """Refuse a version of the row's module that is not the row's.

    Args:
        version: of the module that is installed, such as 10.13.3.9.

    Raises:
        TargetError: naming the version, the row's range, and the row that this version is of.
    """


def check_model(choice: Choice, sizes: Sizes) -> None:
    """Refuse a model whose attention a target can't fuse.

    Raises:
        TargetError: the size, what fuses, and the nearest that works.
    """
