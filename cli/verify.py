"""`edgeformer verify`: whether a bundle's artifacts give what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from edgeformer.exporter.parity import Check
    from edgeformer.runtime import EncoderModel, Model


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder made by `edgeformer export`.")],
    artifact: Annotated[
        str | None, typer.Option("--artifact", metavar="NAME", help="Verify this one; all that run here by default.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Compare with this checkpoint in PyTorch as well."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            "--inputs", metavar="FILE", help="Lines to compare on with --checkpoint; a few random by default."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check a bundle: its files by their hashes, and each artifact's outputs against PyTorch's.

    The samples that PyTorch gave at export are in the bundle, so this runs on a device without PyTorch. With
    --checkpoint, PyTorch computes anew: greedy and beam search over the lines of --inputs, token for token.
    The exit code is 1 when a check fails.

    Example:
      edgeformer verify bundle/
      edgeformer verify bundle/ --checkpoint checkpoint/ --inputs words.txt
    """
    if inputs is not None and checkpoint is None:
        raise typer.BadParameter("--inputs are compared with a checkpoint: give --checkpoint as well")
    from edgeformer.cli import printing, progress, reports
    from edgeformer.exporter.artifact_checks import check_model
    from edgeformer.runtime.errors import ParityError

    models, skipped = load_all(bundle, artifact)
    compared: list[tuple[str, Model | EncoderModel, list[Check]]] = []
    with progress.steps() as step:
        for model in models:
            step(f"verifying {model.artifact.name} with the bundle's samples")
            compared.append(("samples", model, check_model(model)))
    if checkpoint is not None:
        check_anew = checker(models[0], checkpoint, inputs)
        with progress.steps() as step:
            for model in models:
                step(f"verifying {model.artifact.name} with the checkpoint")
                compared.append(("checkpoint", model, check_anew(model)))

    every = [check for _, _, checks in compared for check in checks]
    failed = [check for check in every if not check.passed]
    if as_json:
        results = [
            {"artifact": model.artifact.name, "against": against, "checks": reports.describe_checks(checks)}
            for against, model, checks in compared
        ]
        printing.print_json({"bundle": str(bundle), "passed": not failed, "results": results, "skipped": skipped})
    else:
        rows = [
            (model.artifact.name, against, *row)
            for against, model, checks in compared
            for row in reports.check_rows(checks)
        ]
        printing.print_table(["artifact", "against", "check", "", "detail"], rows)
        for one in skipped:
            printing.print_line(f"{one['artifact']} was not verified: {one['reason']}")
    if failed:
        raise ParityError(f"{len(failed)} of {len(every)} checks failed")


def load_all(folder: Path, name: str | None) -> tuple[list[Model | EncoderModel], list[dict[str, str]]]:
    """The artifacts to verify, loaded, and those that cannot be, each with the reason.

    Raises:
        BundleError: a file that is wanted is damaged.
        TargetError: there is no artifact of this name.
        BackendUnavailableError: nothing can be verified here.
    """
    from edgeformer.exporter.parity import TOLERANCES
    from edgeformer.runtime import EncoderModel, Model
    from edgeformer.runtime.backends import lacking
    from edgeformer.runtime.bundle import open_bundle, read_manifest
    from edgeformer.runtime.cores import Cores
    from edgeformer.runtime.errors import BackendUnavailableError
    from edgeformer.runtime.loading import choose

    wanted = read_manifest(folder).artifacts if name is None else (choose(folder, name),)
    bundle = open_bundle(folder, artifacts=lambda artifact: artifact in wanted)
    models: list[Model | EncoderModel] = []
    skipped = []
    kind = EncoderModel if bundle.manifest.kind == "encoder" else Model
    for artifact in wanted:
        reason = lacking(artifact)
        if reason is None and artifact.precision not in TOLERANCES:
            reason = f"precision {artifact.precision!r} is unknown to this edgeformer"
        if reason is None:
            models.append(kind(bundle, artifact, Cores()))
        else:
            skipped.append({"artifact": artifact.name, "reason": reason})
    if not models:
        reasons = "; ".join(f"{one['artifact']}: {one['reason']}" for one in skipped)
        raise BackendUnavailableError(f"nothing in bundle {folder} can be verified here: {reasons or 'it is empty'}")
    return models, skipped


def checker(model: Model | EncoderModel, checkpoint: Path, inputs: Path | None) -> Callable[[Any], list[Check]]:
    """Compares an artifact with what the checkpoint gives in PyTorch for each line of a file, or for random sources.

    Raises:
        CheckpointError: it cannot be read, or is of another model than the bundle.
        InputError: a line that the model cannot take.
    """
    from edgeformer.cli import progress, requirements
    from edgeformer.cli.inputs import encode, lines_of

    requirements.require(requirements.TO_EXPORT, "verify --checkpoint")
    from edgeformer.exporter.exporting import plain_ids
    from edgeformer.exporter.golden import golden_samples, longest_source, random_sources
    from edgeformer.exporter.parity import check_golden
    from edgeformer.models.checkpoint import load_checkpoint
    from edgeformer.runtime import EncoderModel
    from edgeformer.runtime.errors import InputError

    sources: list[list[int]]
    if inputs is not None:
        sources = encode(model, lines_of(inputs))
        if not sources:
            raise InputError(f"{inputs} is empty: give at least one line")
    else:
        tokens, sizes = model.tokens, model.sizes
        vocabulary = plain_ids(model.bundle.folder, tokens, sizes.source_vocab_size or sizes.vocab_size)
        sources = random_sources(vocabulary, longest_source(sizes), seed=1)  # the bundle's samples have seed 0
    require_same_config(model, checkpoint)
    reference = load_checkpoint(checkpoint)
    if isinstance(model, EncoderModel):
        from edgeformer.exporter.encoder_golden import encoder_samples
        from edgeformer.exporter.encoder_parity import check_encoder

        anew = encoder_samples(reference, model.record, sources)
        return lambda loaded: check_encoder(loaded, anew)
    with progress.counting("inputs searched in PyTorch", len(sources)) as on_done:
        samples = golden_samples(reference, sources, lambda: on_done(1))
    return lambda loaded: check_golden(loaded, samples)


def require_same_config(model: Model | EncoderModel, checkpoint: Path) -> None:
    """Refuse a checkpoint of another model, before its weights are read.

    Raises:
        CheckpointError: naming every difference.
    """
    import dataclasses

    from edgeformer.models.checkpoint import read_config
    from edgeformer.runtime.errors import CheckpointError

    theirs, ours = (dataclasses.asdict(read_config(folder)) for folder in (checkpoint, model.bundle.folder))
    if different := [
        f"{name} is {theirs[name]}, the bundle's {ours[name]}" for name in ours if theirs[name] != ours[name]
    ]:
        raise CheckpointError(f"checkpoint {checkpoint} is of another model", different)
