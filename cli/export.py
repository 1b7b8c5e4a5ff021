"""`edgeformer export`: a checkpoint becomes a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="Folder with config.json, model.safetensors and tokenizer.json."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="BUNDLE", help="Folder to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a bundle that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Export a checkpoint to a bundle with portable ONNX graphs, verified against PyTorch.

    The bundle appears when it is whole: a failure leaves what was there before.

    Example:
      edgeformer export checkpoint/ -o bundle/
    """
    from edgeformer.cli import requirements

    requirements.require(requirements.TO_EXPORT, "export")
    from edgeformer.cli import interrupts, printing, progress, reports
    from edgeformer.exporter.exporting import export_checkpoint
    from edgeformer.exporter.parity import Check
    from edgeformer.runtime.backends import lacking

    checks: list[Check] = []
    with interrupts.sigterm_interrupts(), progress.steps() as step:
        manifest = export_checkpoint(checkpoint, output, overwrite=overwrite, progress=step, on_checks=checks.extend)
    (artifact,) = manifest.artifacts
    if as_json:
        printing.print_json(
            {
                "bundle": str(output),
                **reports.describe_model(manifest),
                "artifacts": [reports.describe_artifact(artifact)],
                "checks": reports.describe_checks(checks),
            }
        )
        return
    rows = [*reports.model_rows(output, manifest), reports.artifact_row(artifact)]
    printing.print_table(["", ""], rows)
    if checks:
        printing.print_table(["check", "", "detail"], reports.check_rows(checks))
    else:
        printing.print_line(f"not verified: {lacking(artifact)}")
