"""A request against the table: what a row can't do is refused with the reason and the nearest that works."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence

from edgeformer.exporter.targets.capabilities import RTX
from edgeformer.exporter.targets.limits import HEAD_SIZES, UNFUSED_PRECISIONS, with_precision
from edgeformer.exporter.targets.rows import TARGETS, Target
from edgeformer.runtime.errors import TargetError
from edgeformer.runtime.names import Sizes

PORTABLE_SET = "portable"  # asked for as a compute capability: one engine for all that a row can serve together


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What an artifact is to be.

    Attributes:
        target: the row.
        precision: how weights are stored.
        attention: the form of attention that its graphs get.
        compute_capabilities: GPUs that the engine is for; none means the one that builds it.
        allow_unfused: whether an attention that no kernel computes may fall back to several layers.
    """

    target: Target
    precision: str
    attention: str
    compute_capabilities: tuple[str, ...]
    allow_unfused: bool = False


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


def choose_target(
    name: str,
    precision: str | None = None,
    *,
    attention: str | None = None,
    compute_capabilities: Sequence[str] = (),
    allow_unfused: bool = False,
) -> Choice:
    """The row of this name, with all that an artifact for it needs decided.

    Args:
        name: a name of `TARGETS`.
        precision: how weights are stored; the row's first where it is None.
        attention: the form of attention; the row's first where it is None.
        compute_capabilities: GPUs that an engine is for, such as 8.9, or `portable` alone. Nothing: portable for
            TensorRT for RTX, the GPU that builds it for TensorRT.
        allow_unfused: whether an attention that no kernel computes may fall back to several layers.

    Raises:
        TargetError: there is no such row, or it can't do this; the reason, and the nearest that works.
    """
    target, precision = find_target(name, precision)
    attention = attention or target.attention[0]
    if attention not in target.attention:
        raise TargetError(
            f"target {name} has no attention of the form {attention!r}: it has {', '.join(target.attention)}"
            f"{nearest_with(attention, target)}"
        )
    if target.module and precision in UNFUSED_PRECISIONS and not allow_unfused:
        raise TargetError(
            f"target {name} fuses no attention in {precision}: take fp16 or bf16, or allow attention in several layers "
            "with --allow-unfused"
        )
    gpus = choose_gpus(target, precision, tuple(compute_capabilities))
    return Choice(target, precision, attention, gpus, allow_unfused)


def nearest_with(attention: str, target: Target) -> str:
    """The rows of the same backend that have a form of attention, as the end of a sentence."""
    found = [row.name for row in TARGETS.values() if attention in row.attention and row.backend == target.backend]
    return f"; targets that have it: {', '.join(found)}" if found else ""


def choose_gpus(target: Target, precision: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
    if not wanted and target.module != RTX:
        return ()
    if not target.compute_capabilities:
        raise TargetError(f"target {target.name} builds no engines, so it takes no compute capability; leave it out")
    have = with_precision(target, precision)
    if not wanted or wanted == (PORTABLE_SET,):
        together = tuple(gpu for gpu in target.portable if gpu in have)
        if not together:
            raise TargetError(
                f"target {target.name} has no portable engines: name one compute capability of {', '.join(have)}"
            )
        return together
    if PORTABLE_SET in wanted:
        raise TargetError(f"{PORTABLE_SET} is all compute capabilities at once: name it alone, or the others alone")
    if unknown := [gpu for gpu in wanted if gpu not in target.compute_capabilities]:
        raise TargetError(
            f"target {target.name} has no compute capability {', '.join(unknown)}; it has: "
            f"{', '.join(target.compute_capabilities)}{', or portable' if target.portable else ''}"
            f"{nearest_for(unknown[0], target)}"
        )
    if lacking := [gpu for gpu in wanted if gpu not in have]:
        others = [
            p for p in target.precisions if lacking[0] in with_precision(target, p) and p not in UNFUSED_PRECISIONS
        ]
        raise TargetError(
            f"compute capability {', '.join(lacking)} has no {precision} on target {target.name}: take "
            f"{' or '.join(others)} there, or one of {', '.join(have)}"
        )
    return wanted


def nearest_for(gpu: str, target: Target) -> str:
    """The rows that build for a GPU, as the end of a sentence."""
    found = [row.name for row in TARGETS.values() if gpu in row.compute_capabilities]
    return f"; targets that have {gpu}: {', '.join(found)}" if found else ""


def check_model(choice: Choice, sizes: Sizes) -> None:
    """Refuse a model whose attention the chosen form can't compute in one kernel.

    Raises:
        TargetError: the width of its heads, what the form takes, and the nearest that works.
    """
    limits = HEAD_SIZES[choice.attention]
    if sizes.head_dim in limits or choice.allow_unfused:
        return
    forms = [form for form in choice.target.attention if sizes.head_dim in HEAD_SIZES[form]]
    if forms:
        nearest = f"take --attention {forms[0]}"
    elif choice.target.module:
        nearest = "allow attention in several layers with --allow-unfused, or take the target ort-cpu"
    else:
        nearest = "the portable graphs run without it"
    raise TargetError(
        f"target {choice.target.name} cannot take heads that are {sizes.head_dim} wide: {choice.attention} attention "
        f"takes {limits}; {nearest}"
    )
