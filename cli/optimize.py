"""`edgeformer optimize`: a bundle gets an artifact for a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def optimize(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder made by `edgeformer export`.")],
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="What to make it for; `edgeformer targets` lists them.")
    ],
    precision: Annotated[
        str | None,
        typer.Option("--precision", metavar="PRECISION", help="How weights are stored; the target's first by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Add an artifact for a target to a bundle, verified against what PyTorch gave at export.

    An artifact of the same target and precision is replaced. A failure leaves the bundle as it was.

    Example:
      edgeformer optimize bundle/ --target ort-cpu --precision int8
    """
    from edgeformer.cli import requirements
    from edgeformer.exporter.targets import find_target

    find_target(target, precision)
    requirements.require(requirements.TO_OPTIMIZE, "optimize")
    from edgeformer.cli import interrupts, printing, progress, reports
    from edgeformer.exporter.optimizing import optimize_bundle
    from edgeformer.exporter.parity import Check

    checks: list[Check] = []
    with interrupts.sigterm_interrupts(), progress.steps() as step:
        artifact = optimize_bundle(bundle, target, precision, progress=step, on_checks=checks.extend)
    if as_json:
        made = {"artifact": reports.describe_artifact(artifact), "checks": reports.describe_checks(checks)}
        printing.print_json({"bundle": str(bundle), **made})
        return
    printing.print_table(["", ""], [("bundle", str(bundle)), reports.artifact_row(artifact)])
    printing.print_table(["check", "", "detail"], reports.check_rows(checks))
