"""The families that are known here: one line each; nothing is imported until it is used, torch least of all."""

from __future__ import annotations

import dataclasses
import difflib
import json
from importlib import import_module
from pathlib import Path
from typing import Any

from edgeformer.runtime.errors import CheckpointError, ConfigError


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """A `model_type` of config.json.

    Attributes:
        config: the class of its configuration, torch-free, as `module:Class`; it has a class method `from_keys` that
            takes an `edgeformer.models.configs.keys.Keys`.
        model: the class of its module, which takes the configuration.
    """

    config: str
    model: str


# One line for each model_type.
FAMILIES: dict[str, Family] = {
    "bart": Family("bart:BartConfig", "bart:Bart"),
    "marian": Family("marian:MarianConfig", "bart:Bart"),
    "mbart": Family("bart:MBartConfig", "bart:Bart"),
    "mt5": Family("t5:MT5Config", "t5:T5"),
    "t5": Family("t5:T5Config", "t5:T5"),
    "bert": Family("bert:BertConfig", "bert:Bert"),
    "camembert": Family("bert:RobertaConfig", "roberta:Roberta"),
    "distilbert": Family("bert:DistilBertConfig", "distilbert:DistilBert"),
    "roberta": Family("bert:RobertaConfig", "roberta:Roberta"),
    "xlm-roberta": Family("bert:RobertaConfig", "roberta:Roberta"),
    "gpt2": Family("gpt2:Gpt2Config", "gpt2:Gpt2"),
    "llama": Family("llama:LlamaConfig", "llama:Llama"),
    "mistral": Family("mistral:MistralConfig", "llama:Llama"),
    "qwen2": Family("qwen2:Qwen2Config", "llama:Llama"),
    "qwen3": Family("qwen3:Qwen3Config", "llama:Llama"),
    "transformer": Family("paper:TransformerConfig", "transformer:Transformer"),
}


def family_of(values: object, subject: str) -> Family:
    """The family of a config.json's content.

    Raises:
        ConfigError: there is none of its model_type; the known ones are listed, the nearest first.
    """
    model_type = values.get("model_type") if isinstance(values, dict) else None
    if isinstance(model_type, str) and model_type in FAMILIES:
        return FAMILIES[model_type]
    nearest = difflib.get_close_matches(str(model_type)[:40], FAMILIES, n=1)
    hint = f"the nearest is {nearest[0]}; " if nearest else ""
    raise ConfigError(subject, [f"model_type is {model_type!r:.200}; {hint}known: {', '.join(sorted(FAMILIES))}"])


def config_class(family: Family) -> Any:
    module, _, name = family.config.partition(":")
    return getattr(import_module(f"edgeformer.models.configs.{module}"), name)


def model_class(family: Family) -> Any:
    module, _, name = family.model.partition(":")
    return getattr(import_module(f"edgeformer.models.{module}"), name)


def read_values(folder: Path) -> Any:
    """The content of a checkpoint folder's config.json.

    Raises:
        CheckpointError: the file is missing, cannot be read, or is not JSON.
    """
    subject = f"checkpoint {folder}"
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(subject, ["config.json is missing"]) from None
    except OSError as error:
        raise CheckpointError(subject, [f"config.json cannot be read: {error.strerror}"]) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits among it
        raise CheckpointError(subject, [f"config.json is not JSON: {error}"]) from error
    return values
