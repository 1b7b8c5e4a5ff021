"""`edgeformer inspect`: what a bundle holds, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from edgeformer.runtime.bundle import Manifest


def inspect(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder made by `edgeformer export`.")],
    graphs: Annotated[bool, typer.Option("--graphs", help="Count the operators of each graph; needs onnx-ir.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what a bundle holds and what of it can run here, and check every file's hash.

    The exit code is 1 when a file is missing or damaged.

    Example:
      edgeformer inspect bundle/ --graphs
    """
    from edgeformer.cli import engine_reports, printing, reports
    from edgeformer.runtime.backends import lacking
    from edgeformer.runtime.bundle import open_bundle, read_manifest
    from edgeformer.runtime.errors import BundleError

    manifest, damage = read_manifest(bundle), None
    try:
        open_bundle(bundle)
    except BundleError as error:
        damage = error
    operators = count_operators(bundle, manifest) if graphs and damage is None else {}
    reasons = {artifact.name: lacking(artifact) for artifact in manifest.artifacts}
    if as_json:
        artifacts = [
            {
                **reports.describe_artifact(artifact),
                "runs_here": reason is None,
                "reason": reason,
                **engine_reports.describe_engine(bundle, artifact),
            }
            for artifact, reason in zip(manifest.artifacts, reasons.values(), strict=True)
        ]
        printing.print_json(
            {
                "bundle": str(bundle),
                "edgeformer_version": manifest.edgeformer_version,
                **reports.describe_model(manifest),
                "files": {name: record.bytes for name, record in manifest.files.items()},
                "artifacts": artifacts,
                "golden_samples": reports.samples_of(manifest),
                **({"operators": operators} if graphs else {}),
                "problems": list(damage.problems) if damage else [],
            }
        )
    else:
        rows = [
            *reports.model_rows(bundle, manifest),
            ("made by", f"edgeformer {manifest.edgeformer_version}"),
            ("samples", f"{reports.samples_of(manifest)} of what PyTorch gave"),
            ("hashes", "see the error below" if damage else "every file is as recorded"),
        ]
        printing.print_table(["", ""], rows)
        columns = ["artifact", "target", "precision", "size", "runs here", "made with"]
        table = [
            (a.name, a.target, a.precision, printing.size(reports.bytes_of(a.files)), reasons[a.name] or "yes",
             ", ".join(f"{package} {version}" for package, version in a.versions.items()))
            for a in manifest.artifacts
        ]  # fmt: skip
        printing.print_table(columns, table, numbers=["size"])
        if engines := [row for a in manifest.artifacts for row in engine_reports.engine_rows(bundle, a)]:
            printing.print_table(engine_reports.COLUMNS, engines, numbers=["plan"])
            profiles = [row for a in manifest.artifacts for row in engine_reports.profile_rows(a)]
            printing.print_table(engine_reports.PROFILE_COLUMNS, profiles)
        if operators:
            counts = [
                (path, operator, str(count)) for path, found in operators.items() for operator, count in found.items()
            ]
            printing.print_table(["graph", "operator", "count"], counts, numbers=["count"])
    if damage is not None:
        raise damage


def count_operators(folder: Path, manifest: Manifest) -> dict[str, dict[str, int]]:
    """How many nodes of each operator each graph has, the most frequent first.

    Raises:
        BackendUnavailableError: onnx_ir is not installed.
    """
    from collections import Counter

    from edgeformer.cli import requirements

    requirements.require(["onnx_ir"], "inspect --graphs")
    import onnx_ir as ir

    counted = {}
    for artifact in manifest.artifacts:
        for path in artifact.graphs.values():
            if not path.endswith(".onnx"):
                continue
            nodes = ir.load(folder / path).graph.all_nodes()
            names = Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes)
            counted[path] = dict(names.most_common())
    return counted
