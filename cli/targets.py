"""`edgeformer targets`: what can be optimized for."""

from __future__ import annotations

from typing import Annotated

import typer


def targets(as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False) -> None:
    """List the targets of `edgeformer optimize`, what each can do, and where it has run.

    Example:
      edgeformer targets
    """
    import dataclasses

    from edgeformer.cli import printing
    from edgeformer.exporter.targets import TARGETS

    if as_json:
        printing.print_json([dataclasses.asdict(target) for target in TARGETS.values()])
        return
    columns = ["target", "backend", "precisions", "attention", "has run"]
    rows = [(t.name, t.backend, ", ".join(t.precisions), ", ".join(t.attention), t.has_run) for t in TARGETS.values()]
    printing.print_table(columns, rows)
