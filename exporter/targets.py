"""What each target can do, as data."""

from __future__ import annotations

import dataclasses
import difflib

from edgeformer.runtime.errors import TargetError


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A capability row.

    Attributes:
        backend: what runs its artifacts.
        precisions: how weights may be stored, the first being the default.
        attention: the form of attention that its graphs have.
        has_run: where this path has been run, and how that is known.
    """

    name: str
    backend: str
    precisions: tuple[str, ...]
    attention: str
    has_run: str


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="ort-cpu",
            backend="ort-cpu",
            precisions=("fp32", "int8", "int8-rows"),
            attention="GroupQueryAttention and MultiHeadAttention kernels, caches written in place",
            has_run="ran in CI",
        ),
    )
}


def find_target(name: str, precision: str | None = None) -> tuple[Target, str]:
    """The target of this name, and the precision to use.

    Raises:
        TargetError: there is no such target, or it has no such precision; the nearest that exists is named.
    """
    if name not in TARGETS:
        near = difflib.get_close_matches(name, TARGETS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise TargetError(f"there is no target {name!r}; known: {', '.join(TARGETS)}{hint}")
    target = TARGETS[name]
    precision = precision or target.precisions[0]
    if precision not in target.precisions:
        raise TargetError(f"target {name} has no precision {precision!r}; it has: {', '.join(target.precisions)}")
    return target, precision
