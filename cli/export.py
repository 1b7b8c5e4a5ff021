"""`edgeformer export`: a checkpoint, or a module of one's own, becomes a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="Folder with config.json, weights and tokenizer; or a module of your own, as package.module:factory.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="BUNDLE", help="Folder to write.")],
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Of a module of your own: tokenizer.json, and generation_config.json if wanted; without, ids alone.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a bundle that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Export a checkpoint, or a module of your own, to a bundle with portable ONNX graphs, verified against PyTorch.

    The bundle appears when it is whole: a failure leaves what was there before.

    Example:
      edgeformer export checkpoint/ -o bundle/
      edgeformer export mypackage.models:make_decoder -o bundle/
    """
    from edgeformer.cli import requirements

    requirements.require(requirements.TO_EXPORT, "export")
    from edgeformer.cli import interrupts, printing, progress, reports
    from edgeformer.exporter.exporting import export_checkpoint, export_module
    from edgeformer.exporter.own_modules import is_module_name, make_module
    from edgeformer.exporter.parity import Check
    from edgeformer.runtime.backends import lacking
    from edgeformer.runtime.errors import CheckpointError

    own = is_module_name(source) and not Path(source).exists()
    if tokenizer is not None and not own:
        raise CheckpointError(f"checkpoint {source}", ["--tokenizer is for modules of your own: it brings a tokenizer"])
    checks: list[Check] = []
    with interrupts.sigterm_interrupts(), progress.steps() as step:
        if own:
            step("importing the module")
            manifest = export_module(
                make_module(source), output, tokenizer=tokenizer, overwrite=overwrite, progress=step,
                on_checks=checks.extend,
            )  # fmt: skip
        else:
            manifest = export_checkpoint(
                Path(source), output, overwrite=overwrite, progress=step, on_checks=checks.extend
            )
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
