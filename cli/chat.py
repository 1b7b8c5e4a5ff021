"""Inputs as the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterable

from edgeformer.cli.inputs import Line
from edgeformer.runtime import Model
from edgeformer.runtime.chat import render_chat
from edgeformer.runtime.errors import InputError


def encode_chats(model: Model, lines: Iterable[Line], system: str | None) -> list[list[int]]:
    """Token ids of a chat for each line: the line is what the user says, and the model's answer comes next.

    Raises:
        InputError: the template or the model cannot take a line; its place is named.
        BundleError: the bundle has no chat template, or one that cannot be rendered.
    """
    told = [] if system is None else [{"role": "system", "content": system}]
    rows = []
    for line in lines:
        try:
            text = render_chat(model.bundle, [*told, {"role": "user", "content": line.text}])
            rows.append(model.text.encode_rendered(text))
        except InputError as error:
            raise line.error(error) from error
    return rows
