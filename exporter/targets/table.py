"""The table of targets in words, for a terminal and for docs/targets.md."""

from __future__ import annotations

from collections.abc import Iterator

from edgeformer.exporter.targets.capabilities import FEATURES
from edgeformer.exporter.targets.limits import HEAD_SIZES
from edgeformer.exporter.targets.rows import BUILT, CHECKED_ON_CPU, DOCUMENTED, RAN, TARGETS, Target

HAS_RUN = {RAN: "ran", CHECKED_ON_CPU: "checked", BUILT: "built", DOCUMENTED: "documented"}
COLUMNS = ("target", "built by", "GPUs", "precisions", "attention", "has run")
LEGEND = (
    *(f"{word}: {meaning}" for meaning, word in HAS_RUN.items()),
    "attention: the form that is preferred; `edgeformer targets NAME` shows everything of a target",
)


def version_range(target: Target) -> str:
    """`10.3 to <10.13`; empty where there are no engines."""
    if target.versions is None:
        return ""
    without = f", not {target.excluded[0]} to <{target.excluded[1]}" if target.excluded else ""
    return f"{target.versions[0]} to <{target.versions[1]}{without}"


def built_by(target: Target) -> str:
    """`10.3 to <10.13`, and RTX where it is that module's version."""
    least, below = target.versions or ("", "")
    return f"{'RTX ' if target.module == 'tensorrt_rtx' else ''}{least} to <{below}" if target.versions else ""


def table_rows() -> list[tuple[str, ...]]:
    """A row for each target under `COLUMNS`, 120 characters wide at most."""
    return [
        (
            target.name,
            built_by(target),
            gpus(target),
            " ".join(target.precisions),
            target.attention[0],
            HAS_RUN[target.has_run],
        )
        for target in TARGETS.values()
    ]


def gpus(target: Target) -> str:
    """The first and last compute capability; the row itself lists all."""
    known = target.compute_capabilities
    return f"{known[0]}-{known[-1]}" if len(known) > 1 else " ".join(known)


def markdown() -> str:
    """What docs/targets.md holds between its markers."""
    return "\n".join([*targets_table(), "", *notes(), *features_table(), "", *heads_table()])


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def targets_table() -> Iterator[str]:
    columns = ("target", "built by", "compute capabilities", "precisions", "attention", "has run")
    yield line(*columns)
    yield line(*("---" for _ in columns))
    for target in TARGETS.values():
        module = {"tensorrt": "TensorRT ", "tensorrt_rtx": "TensorRT-RTX "}.get(target.module or "", "")
        yield line(
            f"`{target.name}`",
            f"{module}{version_range(target)}" or "-",
            ", ".join(target.compute_capabilities) or "-",
            ", ".join(target.precisions),
            ", ".join(target.attention),
            target.has_run,
        )


def notes() -> Iterator[str]:
    by_note: dict[str, list[str]] = {}
    for target in TARGETS.values():
        for note in target.notes:
            by_note.setdefault(note, []).append(f"`{target.name}`")
    for note, names in by_note.items():
        yield f"- {', '.join(names)}: {note}"
    yield ""


def features_table() -> Iterator[str]:
    yield line("feature", "", "TensorRT from", "on Jetson from", "TensorRT-RTX from")
    yield line(*("---" for _ in range(5)))
    for feature in FEATURES.values():
        where = (feature.tensorrt, feature.since("tensorrt", jetson=True), feature.rtx)
        yield line(f"`{feature.name}`", feature.meaning, *(version or "-" for version in where))


def heads_table() -> Iterator[str]:
    yield line("attention", "heads, wide")
    yield line("---", "---")
    for form, sizes in HEAD_SIZES.items():
        yield line(f"`{form}`", str(sizes))
