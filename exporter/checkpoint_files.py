"""The files of a checkpoint that its bundle keeps: tokenizers, and what says how the model is used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgeformer.exporter.tokenizers.preparing import prepare_tokenizers
from edgeformer.models.families import read_values
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.errors import CheckpointError, OptionError
from edgeformer.runtime.option_files import NEUTRAL
from edgeformer.runtime.options import DEFAULTS

GENERATION = "generation_config.json"
# The checkpoint's own files that a bundle keeps as they are, where the checkpoint has them.
COPIED = (
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "modules.json",
    "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json",
)  # fmt: skip
KEPT = ("config.json", GENERATION, "tokenizer.json", "target_tokenizer.json", *COPIED)


def prepare_checkpoint_files(checkpoint: Path, folder: Path, config: Any) -> None:
    """Write into a folder what a bundle keeps of a checkpoint.

    Where there is no generation_config.json, it is made of what config.json says of generation, as older checkpoints
    do: Hugging Face's library reads it there as well.

    Args:
        checkpoint: the folder to keep files of.
        folder: where to write.
        config: of the model.

    Raises:
        CheckpointError: tokenizers or options are missing, damaged, or do not fit the model; every problem is named.
    """
    prepare_files(checkpoint, folder, config)
    shutil.copyfile(checkpoint / "config.json", folder / "config.json")
    if not (folder / GENERATION).exists() and (options := options_of_config(read_values(checkpoint))):
        checked_options("config.json", options, checkpoint)
        (folder / GENERATION).write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")


def prepare_files(checkpoint: Path, folder: Path, config: Any) -> None:
    """As `prepare_checkpoint_files`, but for config.json: what a module of one's own has no use for."""
    source_vocab_size = getattr(config, "source_vocab_size", config.vocab_size)
    parts: tuple[Callable[[], None], ...] = (
        lambda: prepare_tokenizers(checkpoint, folder, config.vocab_size, source_vocab_size),
        lambda: prepare_options(checkpoint, folder),
    )
    problems = list[str]()
    for part in parts:
        try:
            part()
        except CheckpointError as error:
            problems += error.problems
    if problems:
        raise CheckpointError(f"checkpoint {checkpoint}", problems)
    for name in COPIED:
        if (checkpoint / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(checkpoint / name, folder / name)


def prepare_options(checkpoint: Path, folder: Path) -> None:
    path = checkpoint / GENERATION
    if not path.is_file():
        return
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"checkpoint {checkpoint}", [f"{GENERATION} is not JSON: {error}"]) from error
    if not isinstance(values, dict):
        raise CheckpointError(f"checkpoint {checkpoint}", [f"{GENERATION} holds no object"])
    checked_options(GENERATION, values, checkpoint)
    shutil.copyfile(path, folder / GENERATION)


def checked_options(name: str, values: dict[str, Any], checkpoint: Path) -> None:
    try:
        GenerationConfig.from_dict(values)
    except OptionError as error:
        raise CheckpointError(f"checkpoint {checkpoint}", [f"{name}: {error}"]) from error


def options_of_config(values: dict[str, Any]) -> dict[str, Any]:
    """Options of generation in a config.json. Which tokens end a text the model's configuration says."""
    names = (DEFAULTS.keys() | NEUTRAL.keys()) - {"eos_token_id", "seed"}
    return {name: value for name, value in values.items() if name in names and value is not None}
