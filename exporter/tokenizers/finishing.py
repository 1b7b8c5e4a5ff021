"""The last steps of every conversion: special tokens, and what stands around a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, processors

from edgeformer.exporter.tokenizers.special_tokens import SpecialTokens
from edgeformer.runtime.errors import CheckpointError

Around = tuple[list[str], list[str]]  # tokens before and behind a text


def plain(texts: Iterable[str]) -> dict[str, AddedToken]:
    """Special tokens that are matched just as they are written."""
    return {text: AddedToken(text, special=True, normalized=False) for text in texts}


def finish(
    folder: Path,
    tokenizer: Tokenizer,
    special: SpecialTokens,
    named: Mapping[str, AddedToken],
    around: Around,
    *,
    whole_text: bool = False,
) -> None:
    """Make special tokens known to a tokenizer whose model is complete, and put them around texts.

    Args:
        folder: the checkpoint, to name it.
        tokenizer: is changed.
        special: what the checkpoint says.
        named: the family's tokens, by their text: how each is matched unless the checkpoint gives it an id and says
            otherwise. Those that the vocabulary lacks are left out.
        around: what stands before and behind every text.
        whole_text: whether the text is normalized as a whole, before tokens are found in it.

    Raises:
        CheckpointError: tokens that are missing in the vocabulary, or whose ids would be others.
    """
    problems = []
    family = {text: token for text, token in named.items() if tokenizer.token_to_id(text) is not None}
    every = {**{token.content: token for token in (*special.roles.values(), *special.others)}, **family}
    for i, token in special.added.items():
        every.pop(token.content, None)
        tokenizer.add_tokens([in_whole_text(token) if whole_text else token])
        if (found := tokenizer.token_to_id(token.content)) != i:
            problems.append(f"added token {token.content!r} has id {i}, but {found} is what follows the vocabulary")
    tokenizer.add_tokens([in_whole_text(token) if whole_text else token for token in every.values()])
    needed = sorted({*around[0], *around[1]})
    problems += [f"the vocabulary lacks {text!r}" for text in needed if tokenizer.token_to_id(text) is None]
    if problems:
        raise CheckpointError(f"checkpoint {folder}", problems)
    tokenizer.post_processor = template(tokenizer, *around)


def make_roles_special(tokenizer: Tokenizer, special: SpecialTokens) -> bool:
    """In a tokenizer that came as tokenizer.json, tokens to which other files give a role are special all the same.

    Args:
        tokenizer: may be changed.
        special: what the checkpoint's other files say.

    Returns:
        whether it was.
    """
    already = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    roles = [token for token in special.roles.values() if token.content not in already]
    roles = [token for token in roles if tokenizer.token_to_id(token.content) is not None]
    tokenizer.add_special_tokens(roles)
    return bool(roles)


def in_whole_text(token: AddedToken) -> AddedToken:
    return AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=True,
        special=token.special,
    )


def template(tokenizer: Tokenizer, before: list[str], behind: list[str]) -> processors.TemplateProcessing:
    """What stands around a text, and around two of them."""
    return processors.TemplateProcessing(
        single=[*before, "$A", *behind],
        pair=[*before, "$A", *behind, "$B:1", *(f"{token}:1" for token in behind)],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in {*before, *behind}],
    )
