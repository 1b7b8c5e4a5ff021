"""A checkpoint folder becomes a bundle."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path

from tokenizers import Tokenizer

from edgeformer.exporter import onnx_graphs
from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.golden import golden_samples, random_sources
from edgeformer.exporter.parity import OnChecks, check_golden, require
from edgeformer.exporter.records import PORTABLE, Progress, record_files, versions
from edgeformer.exporter.staging import check_free, staged
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.models.transformer import Transformer
from edgeformer.runtime import GenerationConfig, load
from edgeformer.runtime.backends import lacking
from edgeformer.runtime.bundle import MANIFEST, Artifact, Manifest, Tokens, record_file
from edgeformer.runtime.errors import CheckpointError, OptionError

# The checkpoint's own files that a bundle keeps as they are, where the checkpoint has them.
KEPT = (
    "config.json", "generation_config.json", "tokenizer.json", "target_tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json",
)  # fmt: skip


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
        checkpoint: folder with config.json, model.safetensors and tokenizer.json.
        output: the bundle to write.
        overwrite: whether a bundle that is there may be replaced.
        progress: called with the name of each part of the work as it begins.
        on_checks: called with the comparison to PyTorch.

    Raises:
        CheckpointError, ConfigError: the checkpoint cannot be read.
        OutputExistsError, WriteError: the output cannot be written.
        ParityError: the exported graphs do not give what PyTorch gives; nothing is written then.
    """
    check_free(output, overwrite)
    progress("reading the checkpoint")
    model = load_checkpoint(checkpoint)
    check_tokenizers(checkpoint, model)
    with staged(output, overwrite=overwrite) as folder:
        for name in KEPT:
            if (checkpoint / name).is_file():
                shutil.copyfile(checkpoint / name, folder / name)
        progress("exporting the encoder")
        encoder = onnx_graphs.export_encoder(model)
        progress("exporting the step graph")
        decoder = onnx_graphs.export_step(model)
        progress("writing weights")
        (folder / PORTABLE).mkdir()
        save_graphs(folder / PORTABLE, {"encoder": encoder, "decoder": decoder})
        progress("computing golden samples in PyTorch")
        manifest = describe(folder, model)
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        if reason := lacking(manifest.artifacts[0]):
            progress(f"not verified: {reason}")
        else:
            progress("verifying against PyTorch")
            checks = check_golden(load(folder, PORTABLE), manifest.golden)
            on_checks(checks)
            require(checks, f"the export of {checkpoint}")
    return manifest


def check_tokenizers(checkpoint: Path, model: Transformer) -> None:
    """Refuse tokenizers that are missing, damaged, or know ids that the model has no embedding for.

    Raises:
        CheckpointError: with every problem.
    """
    problems = []
    for name in ("tokenizer.json", "target_tokenizer.json"):
        path = checkpoint / name
        if not path.is_file():
            if name == "tokenizer.json":
                problems.append(f"{name} is missing")
            continue
        try:
            vocabulary = Tokenizer.from_file(str(path)).get_vocab()
        except Exception as error:  # tokenizers raises plain Exception
            problems.append(f"{name} is not a tokenizer: {error}")
            continue
        if beyond := sorted(token for token, i in vocabulary.items() if i >= model.config.vocab_size):
            problems.append(f"{name} has tokens beyond vocab_size {model.config.vocab_size}: {', '.join(beyond[:5])}")
    path = checkpoint / "generation_config.json"
    if path.is_file():
        try:
            GenerationConfig.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            problems.append(f"generation_config.json is not JSON: {error}")
        except AttributeError:
            problems.append("generation_config.json holds no object")
        except OptionError as error:
            problems.append(f"generation_config.json: {error}")
    if problems:
        raise CheckpointError(f"checkpoint {checkpoint}", problems)


def describe(folder: Path, model: Transformer) -> Manifest:
    config = model.config
    special = {config.pad_token_id, config.bos_token_id, config.eos_token_id}
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    sources = random_sources(sorted(set(vocabulary.values()) - special), config.max_positions)
    portable = Artifact(
        name=PORTABLE,
        target=PORTABLE,
        backend="ort-cpu",
        precision="fp32",
        graphs={role: f"{PORTABLE}/{role}.onnx" for role in ("encoder", "decoder")},
        files=record_files(folder, folder / PORTABLE),
        versions=versions("torch", "onnx", "onnxscript", "onnx-ir"),
        needs={"onnxruntime": "1.25"},  # the first whose CPU kernels have opset 24's TensorScatter
    )
    return Manifest(
        edgeformer_version=version("edgeformer"),
        model_type="transformer",
        sizes=onnx_graphs.sizes_of(model),
        tokens=Tokens(pad=config.pad_token_id, start=config.bos_token_id, end=config.eos_token_id),
        files={name: record_file(folder / name) for name in KEPT if (folder / name).is_file()},
        artifacts=(portable,),
        golden=golden_samples(model, sources),
    )
