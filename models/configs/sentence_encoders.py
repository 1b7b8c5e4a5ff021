"""Folders of sentence-transformers: an encoder, how its hidden states become one vector, and files that say so.

modules.json                 the parts in their order: Transformer, Pooling, Normalize
1_Pooling/config.json        which poolings
sentence_bert_config.json    the longest input
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from edgeformer.models.configs.keys import Keys, shown

Mode = Literal["first", "max", "mean", "mean-sqrt"]

MODULES = "modules.json"
LIMITS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
# In the order in which several are laid side by side.
MODES: dict[str, Mode] = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean-sqrt",
}
UNSUPPORTED_MODES = ("pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken")


@dataclasses.dataclass(frozen=True, slots=True)
class Pooling:
    """How hidden states become an embedding.

    Attributes:
        modes: poolings over a row's tokens, laid side by side; at least one.
        normalize: whether the result is scaled to length 1.
    """

    modes: tuple[Mode, ...]
    normalize: bool = False


def is_sentence_encoder(folder: Path) -> bool:
    return (folder / MODULES).is_file()


def read_longest(keys: Keys, most: int) -> int:
    """The most tokens of an input: `most`, or fewer where a sentence encoder was made for fewer."""
    if keys.folder is None or not is_sentence_encoder(keys.folder):
        return most
    values = read_object(keys, LIMITS)
    if values.get("do_lower_case") not in (None, False):
        keys.problem(f"{LIMITS}: do_lower_case is {shown(values['do_lower_case'])}; let the tokenizer do it")
    longest = values.get("max_seq_length")
    if longest is None:
        return most
    if type(longest) is not int or longest < 1:
        keys.problem(f"{LIMITS}: max_seq_length is {shown(longest)}, expected a whole number of at least 1")
        return most
    return min(longest, most)


def read_pooling(keys: Keys) -> Pooling:
    """What follows the encoder; what is wrong is added to the problems of `keys`."""
    if (prompt := read_object(keys, PROMPTS).get("default_prompt_name")) is not None:
        keys.problem(
            f"{PROMPTS}: the default prompt {shown(prompt)} is not supported; set it to null, and write it out"
        )
    modules = read_json(keys, MODULES)
    kinds, paths = [], list[str]()
    for module in modules if isinstance(modules, list) else [modules]:
        if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("type", "path")):
            keys.problem(f"{MODULES}: a module is {module!r:.80}, expected its type and its path")
            return Pooling(("mean",))
        kinds.append(module["type"].rpartition(".")[2])
        paths.append(module["path"])
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        supported = "only Transformer, Pooling and, at the end, Normalize are"
        keys.problem(f"{MODULES}: the modules {', '.join(kinds)} are not supported: {supported}")
        return Pooling(("mean",))
    if paths[0]:
        keys.problem(f"{MODULES}: the Transformer is in {paths[0]!r}, expected in the folder itself")
    return Pooling(read_modes(keys, paths[1]), normalize=len(kinds) > 2)


def read_modes(keys: Keys, path: str) -> tuple[Mode, ...]:
    name = str(PurePosixPath(path) / "config.json")
    values = read_object(keys, name)
    unsupported = [mode for mode in UNSUPPORTED_MODES if values.get(mode)]
    for mode in unsupported:
        keys.problem(f"{name}: {mode} is not supported: only {', '.join(MODES)} are")
    known = {*MODES, *UNSUPPORTED_MODES, "word_embedding_dimension", "include_prompt"}
    for key in values.keys() - known:
        keys.problem(f"{name}: key {key!r} is not understood")
    if values.get("include_prompt") is False:
        keys.problem(f"{name}: include_prompt is false, which is not supported: prompts are part of the input")
    modes = tuple(mode for key, mode in MODES.items() if values.get(key))
    if not modes and not unsupported:
        keys.problem(f"{name}: it names no pooling of {', '.join(MODES)}")
    return modes or ("mean",)


def read_object(keys: Keys, name: str) -> dict[str, Any]:
    """The content of one of the checkpoint's files; empty where it is missing, or is not what it should be."""
    if keys.folder is None or not (keys.folder / name).is_file():
        return {}
    values = read_json(keys, name)
    if not isinstance(values, dict):
        keys.problem(f"{name} holds {type(values).__name__}, expected an object")
        return {}
    return values


def read_json(keys: Keys, name: str) -> Any:
    """The content of a file of the checkpoint; None where it cannot be read, which becomes a problem."""
    path = PurePosixPath(name)
    if keys.folder is None or path.is_absolute() or ".." in path.parts:
        keys.problem(f"{name!r} leads out of the checkpoint")
        return None
    try:
        return json.loads((keys.folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        keys.problem(f"{name} cannot be read: {error}")
        return None
