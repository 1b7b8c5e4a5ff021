"""Special and added tokens of a checkpoint: tokenizer_config.json, special_tokens_map.json, added_tokens.json."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from edgeformer.runtime.errors import CheckpointError

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
LISTS = ("additional_special_tokens", "extra_special_tokens")


@dataclasses.dataclass(frozen=True, slots=True)
class SpecialTokens:
    """What a checkpoint says of its tokens.

    Attributes:
        config: all of tokenizer_config.json.
        roles: the token of each role that is given.
        added: tokens with an id of their own, by that id.
        others: special tokens without a role.
    """

    config: Mapping[str, Any]
    roles: Mapping[str, AddedToken]
    added: Mapping[int, AddedToken]
    others: tuple[AddedToken, ...]

    def content(self, role: str, default: str) -> str:
        """The text of a role's token."""
        return self.roles[role].content if role in self.roles else default


def read_special_tokens(folder: Path) -> SpecialTokens:
    """Read what a checkpoint folder says of its tokens; every file may be missing.

    Raises:
        CheckpointError: a file is not JSON, or holds what is no token.
    """
    names = ("special_tokens_map.json", "tokenizer_config.json", "added_tokens.json")
    old, config, ids = (read_object(folder / name) for name in names)
    given = {**old, **{key: value for key, value in config.items() if value is not None}}
    try:
        roles = {role: token_of(given[role]) for role in ROLES if given.get(role)}
        added = {int(i): token_of(token) for i, token in (config.get("added_tokens_decoder") or {}).items()}
        named = {token.content for token in added.values()}
        added |= {int(i): token_of(content) for content, i in ids.items() if content not in named}
        others = tuple(token_of(token) for key in LISTS for token in listed(given.get(key)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"checkpoint {folder}", [f"its special tokens cannot be read: {error!r}"]) from error
    return SpecialTokens(config, roles, dict(sorted(added.items())), others)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is no such file.

    Raises:
        CheckpointError: it is not JSON, or no object.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path.parent}", [f"{path.name} is not JSON: {error}"]) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"checkpoint {path.parent}", [f"{path.name} holds no object"])
    return content


def listed(tokens: Any) -> list[Any]:
    return list(tokens.values() if isinstance(tokens, dict) else tokens or ())


def token_of(given: str | Mapping[str, Any]) -> AddedToken:
    """A token as the JSON files write it: its text, or an object that also says how it is matched."""
    if isinstance(given, str):
        return AddedToken(given, special=True, normalized=False)
    flags = {key: bool(given[key]) for key in ("lstrip", "rstrip", "single_word") if key in given}
    special = bool(given.get("special", True))
    return AddedToken(given["content"], special=special, normalized=bool(given.get("normalized", not special)), **flags)
