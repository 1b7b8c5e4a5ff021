"""`edgeformer run --chat`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime.bundle import record_file

# The tiny bundle speaks words: a chat is what the system says, spelled before what the user says, and ended.
TEMPLATE = """
{%- for message in messages %}
    {%- if message.role not in ('system', 'user') %}{{ raise_exception('who is ' + message.role) }}{% endif %}
    {%- if 'q' in message.content %}{{ raise_exception('no q') }}{% endif %}
    {{- message.content | lower }}
{%- endfor %}
{{- eos_token }}
"""


@pytest.fixture
def chatty(bundle: Path, edit: Callable[..., None]) -> Path:
    """A bundle with a chat template."""
    config = {"eos_token": "</s>", "chat_template": TEMPLATE}
    (bundle / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    record = dataclasses.asdict(record_file(bundle / "tokenizer_config.json"))
    edit(lambda manifest: manifest["files"].update({"tokenizer_config.json": record}))
    return bundle


def test_a_message_is_rendered_and_no_token_is_added_twice(cli: Callable[..., Any], chatty: Path) -> None:
    assert cli("run", chatty, "--chat", "HELLO").ok.out == cli("run", chatty, "hello").ok.out


def test_the_system_speaks_first(cli: Callable[..., Any], chatty: Path) -> None:
    expected = cli("run", chatty, "abcde").ok.out
    assert cli("run", chatty, "--system", "abc", "--chat", "de").ok.out == expected
    assert cli("run", chatty, "--system", "abc", "--chat", "--stream", "de").ok.out == expected


def test_each_line_is_a_chat_of_its_own(cli: Callable[..., Any], chatty: Path) -> None:
    found = cli("run", chatty, "--chat", "--json", stdin=b"abc\nzz\n").ok.out.splitlines()
    plain = cli("run", chatty, "--json", "abc", "zz").ok.out.splitlines()
    assert [json.loads(line) for line in found] == [json.loads(line) for line in plain]


def test_what_the_template_does_not_take_is_refused_with_its_place(cli: Callable[..., Any], chatty: Path) -> None:
    cli("run", chatty, "--chat", stdin=b"abc\nq\n").refused("standard input, line 2", "does not take", "no q")


def test_a_bundle_without_template_cannot_chat(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    cli("run", tiny_bundle, "--chat", "hello").refused("no chat template", "chat_template.jinja")


def test_a_system_without_chat_is_a_usage_error(cli: Callable[..., Any], tiny_bundle: Path) -> None:
    result = cli("run", tiny_bundle, "--system", "abc", "hello")
    assert result.code == 2
    assert "--chat" in result.err
