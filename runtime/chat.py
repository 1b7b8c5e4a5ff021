"""Conversations as the text that a model was trained to go on with, by the template that its checkpoint came with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgeformer.runtime.bundle import Bundle
from edgeformer.runtime.errors import BackendUnavailableError, BundleError, InputError

CONFIG, TEMPLATE, TOKENS = "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json"
DEFAULT = "default"
ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

Message = Mapping[str, Any]


def render_chat(
    bundle: Bundle,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    template: str = DEFAULT,
) -> str:
    """The text of a conversation, with all the special tokens that belong to it: encode it without adding any.

    Args:
        bundle: holds the template, in chat_template.jinja or tokenizer_config.json.
        messages: each with `role` (system, user or assistant, as the template has it) and `content`.
        add_generation_prompt: whether the text ends where the model's answer begins.
        template: its name, where the checkpoint has several.

    Raises:
        InputError: there are no messages, or the template takes no such conversation.
        BundleError: the bundle has no such template, or one that does what no template may.
        BackendUnavailableError: Jinja is not installed.
    """
    plain = plain_messages(messages)
    source = chosen(bundle, template)
    try:
        from edgeformer.runtime import chat_sandbox
    except ImportError as error:
        raise BackendUnavailableError(
            f"chat templates need Jinja 3.1.6 or later, which is not here ({error}): pip install 'edgeformer[chat]'"
        ) from error
    variables = {
        **special_tokens(bundle),
        "messages": plain,
        "tools": None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
    }
    try:
        return chat_sandbox.render(source, variables)
    except chat_sandbox.RefusedError as error:
        raise InputError(f"the chat template does not take this conversation: {error}") from error
    except chat_sandbox.TemplateFaultError as error:
        raise BundleError(f"bundle {bundle.folder}", [f"its chat template cannot be rendered: {error}"]) from error


def plain_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Copies of plain JSON values, without those that are None: templates see no other objects.

    Raises:
        InputError: there are none, or they are no messages.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not all(isinstance(message, Mapping) for message in messages):
        raise InputError(f"messages are {messages!r:.80}, expected a list of objects with role and content")
    if not messages:
        raise InputError("there are no messages: give at least one")
    if missing := [i for i, message in enumerate(messages) if not isinstance(message.get("role"), str)]:
        raise InputError(f"message {missing[0]} has no role: expected one such as user or assistant")
    try:
        kept = [{key: value for key, value in message.items() if value is not None} for message in messages]
        plain: list[dict[str, Any]] = json.loads(json.dumps(kept))
    except (TypeError, ValueError) as error:
        raise InputError(f"messages hold what is no text, number or list: {error}") from error
    return plain


def chosen(bundle: Bundle, name: str) -> str:
    """A template of the bundle.

    Raises:
        BundleError: it has none, or none of this name; those that it has are named.
    """
    templates = templates_of(bundle)
    if name in templates:
        return templates[name]
    problem = f"it has no chat template: neither {TEMPLATE} nor one in {CONFIG}; give the whole prompt as text"
    if templates:
        problem = f"it has no chat template {name!r}, but {', '.join(sorted(templates))}"
    raise BundleError(f"bundle {bundle.folder}", [problem])


def templates_of(bundle: Bundle) -> dict[str, str]:
    """Templates by their names; the file's own goes before the configuration's."""
    if TEMPLATE in bundle.manifest.files:
        try:
            return {DEFAULT: (bundle.folder / TEMPLATE).read_text(encoding="utf-8")}
        except UnicodeDecodeError as error:
            raise BundleError(f"bundle {bundle.folder}", [f"{TEMPLATE} is not UTF-8: {error}"]) from error
    given = bundle.read_json(CONFIG).get("chat_template")
    try:
        if isinstance(given, list):
            given = {entry["name"]: entry["template"] for entry in given}
        templates = dict(given) if isinstance(given, dict) else {DEFAULT: given} if given is not None else {}
        if not all(isinstance(template, str) for template in templates.values()):
            raise TypeError("a template is no text")
    except (KeyError, TypeError) as error:
        raise BundleError(f"bundle {bundle.folder}", [f"{CONFIG} has no readable chat_template: {error}"]) from error
    return templates


def special_tokens(bundle: Bundle) -> dict[str, str]:
    """The text of each role's token, as templates call them: `bos_token`, `eos_token`, ..."""
    given = {**bundle.read_json(TOKENS), **bundle.read_json(CONFIG)}
    texts = {role: token["content"] if isinstance(token := given.get(role), dict) else token for role in ROLES}
    return {role: text for role, text in texts.items() if isinstance(text, str)}
