"""A checkpoint folder, or a module of one's own, becomes a bundle."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir
from tokenizers import Tokenizer
from torch import nn

from edgeformer.exporter import encoder_graphs, onnx_graphs
from edgeformer.exporter.artifact_checks import check_artifact
from edgeformer.exporter.checkpoint_files import KEPT, prepare_checkpoint_files, prepare_files
from edgeformer.exporter.checkpoint_memory import require_memory
from edgeformer.exporter.encoder_golden import encoder_samples
from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.golden import LONGEST, golden_samples, longest_source, random_sources
from edgeformer.exporter.own_modules import check_module
from edgeformer.exporter.parity import OnChecks, require
from edgeformer.exporter.records import PORTABLE, Progress, record_files, versions
from edgeformer.exporter.staging import check_free, staged
from edgeformer.exporter.tracing import explained
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.models.families import read_values
from edgeformer.models.protocols import kind_of
from edgeformer.runtime.backends import lacking
from edgeformer.runtime.bundle import MANIFEST, Artifact, Manifest, Tokens, record_file


def export_checkpoint(
    checkpoint: Path,
    output: Path,
    *,
    overwrite: bool = False,
    progress: Progress = lambda step: None,
    on_checks: OnChecks = lambda checks: None,
) -> Manifest:
    """Export a checkpoint folder to a bundle with portable ONNX graphs, verified against PyTorch.

    Args:
        checkpoint: folder with config.json, weights and tokenizer.
        output: the bundle to write.
        overwrite: whether a bundle that is there may be replaced.
        progress: called with the name of each part of the work as it begins.
        on_checks: called with the comparison to PyTorch.

    Raises:
        CheckpointError, ConfigError: the checkpoint cannot be read.
        NotEnoughMemoryError: it is too large for this machine; told before its weights are read.
        OutputExistsError, WriteError: the output cannot be written.
        ParityError: the exported graphs do not give what PyTorch gives; nothing is written then.
    """
    check_free(output, overwrite)
    progress("reading the checkpoint")
    model = load_checkpoint(checkpoint, before_weights=require_memory)
    model_type, subject = read_values(checkpoint)["model_type"], f"the export of {checkpoint}"
    with tempfile.TemporaryDirectory(prefix="edgeformer-") as kept:
        prepare_checkpoint_files(checkpoint, Path(kept), model.config)
        return write_bundle(model, model_type, subject, output, Path(kept), overwrite, progress, on_checks)


def export_module(
    module: nn.Module,
    output: Path,
    *,
    tokenizer: Path | None = None,
    overwrite: bool = False,
    progress: Progress = lambda step: None,
    on_checks: OnChecks = lambda checks: None,
) -> Manifest:
    """Export a module of one's own, as `edgeformer.models.protocols` asks for, to a verified bundle.

    Args:
        module: with its weights, in evaluation mode from here on.
        output: the bundle to write.
        tokenizer: folder with a tokenizer and what else a bundle keeps; without one, the bundle takes token ids
            alone.
        overwrite, progress, on_checks: as in `export_checkpoint`.

    Raises:
        ModuleError: the module does not offer what is needed, and everything is named; or torch cannot export it.
        CheckpointError: the tokenizer does not fit.
        OutputExistsError, WriteError, ParityError: as `export_checkpoint`.
    """
    check_free(output, overwrite)
    check_module(module)
    name = type(module).__name__
    with tempfile.TemporaryDirectory(prefix="edgeformer-") as kept:
        if tokenizer is not None:
            prepare_files(tokenizer, Path(kept), cast("Any", module).config)
        subject = f"the export of {name}"
        with explained(name, output):
            return write_bundle(module.eval(), name, subject, output, Path(kept), overwrite, progress, on_checks)


def write_bundle(
    model: nn.Module,
    model_type: str,
    subject: str,
    output: Path,
    kept: Path,
    overwrite: bool,
    progress: Progress,
    on_checks: OnChecks,
) -> Manifest:
    """Export, describe and verify a model; `kept` holds the files that its bundle keeps of those that came with it."""
    with staged(output, overwrite=overwrite) as folder:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        graphs = export_graphs(model, progress)
        progress("writing weights")
        (folder / PORTABLE).mkdir()
        save_graphs(folder / PORTABLE, graphs)
        progress("computing golden samples in PyTorch")
        manifest = describe(folder, model, model_type, tuple(graphs))
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        if reason := lacking(manifest.artifacts[0]):
            progress(f"not verified: {reason}")
        else:
            progress("verifying against PyTorch")
            checks = check_artifact(folder, PORTABLE, manifest)
            on_checks(checks)
            require(checks, subject)
    return manifest


def export_graphs(model: Any, progress: Progress) -> dict[str, ir.Model]:
    """The portable graphs of a model, by their roles."""
    if kind_of(model) != "encoder":
        return onnx_graphs.export_graphs(model, progress)
    progress("exporting the encoder")
    return {"encoder": encoder_graphs.export_encoder_only(model, encoder_graphs.describe_encoder(model))}


def describe(folder: Path, model: Any, model_type: str, roles: tuple[str, ...]) -> Manifest:
    kind = kind_of(model)
    portable = Artifact(
        name=PORTABLE,
        target=PORTABLE,
        backend="ort-cpu",
        precision="fp32",
        graphs={role: f"{PORTABLE}/{role}.onnx" for role in roles},
        files=record_files(folder, folder / PORTABLE),
        versions=versions("torch", "onnx", "onnxscript", "onnx-ir"),
        needs={"onnxruntime": "1.25"},  # the first whose CPU kernels have opset 24's TensorScatter
    )
    return Manifest(
        edgeformer_version=version("edgeformer"),
        model_type=model_type,
        kind=kind,
        files={name: record_file(folder / name) for name in KEPT if (folder / name).is_file()},
        artifacts=(portable,),
        **(describe_encoder(folder, model) if kind == "encoder" else describe_generation(folder, model)),
    )


def describe_generation(folder: Path, model: Any) -> dict[str, Any]:
    """What a manifest says of a model that generates."""
    config, sizes = model.config, onnx_graphs.sizes_of(model)
    tokens = Tokens(pad=config.pad_token_id, start=config.start_token_id, ends=tuple(config.eos_token_ids))
    vocabulary = plain_ids(folder, tokens, sizes.source_vocab_size or sizes.vocab_size)
    golden = golden_samples(model, random_sources(vocabulary, longest_source(sizes)))
    return {"sizes": sizes, "tokens": tokens, "golden": golden}


def describe_encoder(folder: Path, model: Any) -> dict[str, Any]:
    """What a manifest says of an encoder."""
    pad, sizes, record = (
        model.config.pad_token_id, encoder_graphs.sizes_of_encoder(model), encoder_graphs.describe_encoder(model)
    )  # fmt: skip
    tokens = Tokens(pad=pad, start=pad, ends=())
    sources = random_sources(plain_ids(folder, tokens, sizes.vocab_size), min(sizes.max_positions, LONGEST))
    samples = encoder_samples(model, record, sources)
    return {"sizes": sizes, "tokens": tokens, "golden": (), "encoder": dataclasses.replace(record, samples=samples)}


def plain_ids(folder: Path, tokens: Tokens, vocab_size: int) -> list[int]:
    """Ids that a source may be made of: the tokenizer's, or all where there is none, but those with a meaning."""
    path = folder / "tokenizer.json"
    known = set(Tokenizer.from_file(str(path)).get_vocab().values()) if path.is_file() else set(range(vocab_size))
    plain = sorted(i for i in known - {tokens.pad, tokens.start, *tokens.ends} if i < vocab_size)
    return plain or list(range(vocab_size))  # of a tokenizer that knows no others
