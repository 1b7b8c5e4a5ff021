"""`edgeformer targets`: what can be optimized for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from edgeformer.exporter.targets import Target


def targets(
    name: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", help="Show everything of this one.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table, or the one target, as JSON.")] = False,
) -> None:
    """List the targets of `edgeformer optimize`, what each can do, and where it has run.

    Example:
      edgeformer targets
      edgeformer targets jetson-orin-jp6
    """
    from edgeformer.cli import printing
    from edgeformer.exporter.targets import TARGETS, find_target
    from edgeformer.exporter.targets.table import COLUMNS, LEGEND, table_rows

    if name is not None:
        target, _ = find_target(name)
        if as_json:
            printing.print_json(describe(target))
        else:
            printing.print_table(["", ""], details(target))
        return
    if as_json:
        printing.print_json([describe(target) for target in TARGETS.values()])
        return
    printing.print_table(COLUMNS, table_rows())
    for line in LEGEND:
        printing.print_line(line)


def describe(target: Target) -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(target), "features": sorted(target.features)}


def details(target: Target) -> list[tuple[str, str]]:
    """Everything of a row, in rows of two columns."""
    from edgeformer.exporter.targets import FEATURES, HEAD_SIZES, with_precision
    from edgeformer.exporter.targets.table import version_range

    rows = [
        ("target", target.name),
        ("has run", target.has_run),
        ("backend", target.backend),
        ("built by", f"{target.module} {version_range(target)}" if target.module else "this package alone"),
        ("platforms", ", ".join(target.platforms)),
    ]
    for precision in target.precisions:
        gpus = with_precision(target, precision)
        rows.append(("precision", f"{precision} on {', '.join(gpus)}" if gpus else precision))
    if target.portable:
        rows.append(("portable", f"one engine for {', '.join(target.portable)}"))
    rows += [("attention", f"{form}, heads {HEAD_SIZES[form]} wide") for form in target.attention]
    rows += [("has", FEATURES[name].meaning) for name in FEATURES if name in target.features]
    if target.module:
        lacks = [feature for feature in FEATURES.values() if feature.name not in target.features]
        later = [(feature, feature.since(target.module, jetson=target.jetson)) for feature in lacks]
        rows += [("lacks", f"{feature.meaning}{f' (from {since})' if since else ''}") for feature, since in later]
    return [*rows, *(("note", note) for note in target.notes)]
