"""Conversations are rendered as transformers renders them, and templates of strangers do no harm."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edgeformer.runtime.bundle import Bundle
from edgeformer.runtime.chat import render_chat, templates_of
from edgeformer.runtime.errors import BackendUnavailableError, BundleError, InputError
from edgeformer.runtime.text import encode

CHATML = """
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

SYSTEM_INSIDE = """
{%- if messages[0].role == 'system' -%}
    {%- set system = '<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n' -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set system = '' -%}
    {%- set turns = messages -%}
{%- endif -%}
{%- for turn in turns -%}
    {%- if (turn.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('user and assistant have to take turns') -}}
    {%- endif -%}
    {%- if turn.role == 'user' -%}
        {{- bos_token ~ '[INST] ' ~ (system if loop.first else '') ~ turn.content.strip() ~ ' [/INST]' -}}
    {%- else -%}
        {{- ' ' ~ turn.content.strip() ~ ' ' ~ eos_token -}}
    {%- endif -%}
{%- endfor -%}
"""

HEADERS = """
{%- set shown = namespace(date=none, count=0) %}
{%- set shown.date = strftime_now('%d %b %Y') if date_string is not defined else date_string %}
{{- bos_token }}
{%- macro header(role) %}<|start|>{{ role }}<|end|>{{ '\n\n' }}{% endmacro %}
{% for message in messages if message.content is string %}
    {%- set shown.count = shown.count + 1 %}
    {{- header(message.role) + message.content + '<|eot|>' }}
{% endfor %}
Today: {{ shown.date }} / {{ shown.count }} of {{ messages | length }}
{%- if add_generation_prompt %}{{ header('assistant') }}{% endif %}
"""

TOOLS = """
{% if tools %}tools: {{ tools | tojson(indent=2) }}{% else %}none{% endif %}
{% for message in messages %}
  {% if message.role == 'skip' %}{% continue %}{% endif %}
  {% if message.role == 'stop' %}{% break %}{% endif %}
  {% generation %}
{{ message | tojson }}
  {% endgeneration %}
  {{ loop.index }}/{{ loop.length }} {{ loop.last }} {{ loop.nextitem.role if loop.nextitem is defined else '-' }}
{% endfor %}
{{ {'b': '<&\u00e9>', 'a': [1, none]} | tojson(sort_keys=true, separators=(',', ':')) }}
{{ "%s-%02d" | format(messages[0].role, 7) }} {{ "%s" % "x" }} {{ [1, 2] + [3] }} {{ 'ab' * 3 }} {{ 7 * 6 }}
{{ 2 ** 5 }}
{{ messages | map(attribute='role') | join(', ') | upper | replace('S', 'ss') }} {{ range(3) | list }}
"""

CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be <b>brief</b> & kind. \u00e9\u65e5"}, {"role": "user", "content": "  Hi \n"}],
    [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": None},
        {"role": "user", "content": "{{ 7 * 7 }} {% raw %} </s><|im_end|>"},
    ],
    [{"role": "user", "content": "1"}, {"role": "skip", "content": "2"}, {"role": "stop", "content": "3"}],
]  # fmt: skip


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[..., Bundle]:
    def make(template: Any = None, *, file: str | None = None, **config: Any) -> Bundle:
        config = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, **config}
        if template is not None:
            config["chat_template"] = template
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        files = ["tokenizer_config.json"]
        if file is not None:
            (tmp_path / "chat_template.jinja").write_text(file, encoding="utf-8", newline="")
            files.append("chat_template.jinja")
        manifest = SimpleNamespace(files=dict.fromkeys(files))
        return Bundle(tmp_path, cast("Any", manifest))

    return make


def theirs(template: str, messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> str:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1}, "<s>")), bos_token="<s>", eos_token="</s>"
    )
    rendered = tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    return str(rendered)


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize("template", [CHATML, SYSTEM_INSIDE, HEADERS, TOOLS])
def test_chats_are_rendered_as_by_transformers(bundle: Callable[..., Bundle], template: str, prompted: bool) -> None:
    for messages in CHATS:
        if template is SYSTEM_INSIDE and messages[-1]["role"] == "stop":
            continue  # refused, as said below
        found = render_chat(bundle(template), messages, add_generation_prompt=prompted)
        assert found == theirs(template, messages, add_generation_prompt=prompted)
        assert found == render_chat(bundle(file=template), messages, add_generation_prompt=prompted)


def test_what_is_rendered_is_what_was_written(bundle: Callable[..., Bundle]) -> None:
    found = render_chat(bundle(CHATML), CHATS[1])
    assert found == (
        "<|im_start|>system\nBe <b>brief</b> & kind. \u00e9\u65e5<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_of_several_templates_one_is_named(bundle: Callable[..., Bundle]) -> None:
    several = {"default": "A{{ eos_token }}", "rag": "B{{ pad_token }}"}
    for given in (several, [{"name": name, "template": text} for name, text in several.items()]):
        assert templates_of(bundle(given)) == several
        assert render_chat(bundle(given), CHATS[0]) == "A</s>"
        assert render_chat(bundle(given), CHATS[0], template="rag") == "B"
        with pytest.raises(BundleError, match="no chat template 'tools', but default, rag"):
            render_chat(bundle(given), CHATS[0], template="tools")
    assert render_chat(bundle(several, file="C"), CHATS[0]) == "C"


def test_a_bundle_without_template_says_where_it_looked(bundle: Callable[..., Bundle]) -> None:
    with pytest.raises(BundleError, match="neither chat_template.jinja nor one in tokenizer_config.json"):
        render_chat(bundle(), CHATS[0])
    for damaged in (3, ["a"], [{"name": "default"}], {"default": None}):
        with pytest.raises(BundleError, match="no readable chat_template"):
            render_chat(bundle(damaged), CHATS[0])


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "there are no messages"),
        ("hello", "expected a list of objects"),
        (["hello"], "expected a list of objects"),
        ({"role": "user"}, "expected a list of objects"),
        ([{"role": "user", "content": "a"}, {"content": "a"}], "message 1 has no role"),
        ([{"role": "user", "content": object()}], "what is no text, number or list"),
    ],
)
def test_what_is_no_conversation_is_refused(bundle: Callable[..., Bundle], messages: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        render_chat(bundle(CHATML), messages)


def test_a_template_may_refuse_a_conversation(bundle: Callable[..., Bundle]) -> None:
    with pytest.raises(InputError, match="does not take this conversation: user and assistant have to take turns"):
        render_chat(bundle(SYSTEM_INSIDE), [*CHATS[0], *CHATS[0]])


HARMFUL = {
    "internals of a text": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "internals by a filter": "{{ messages | attr('__class__') | attr('__base__') }}",
    "internals of a function": "{{ raise_exception.__globals__ }}",
    "internals by a format": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "internals of a macro": "{% macro m() %}{% endmacro %}{{ m.__init__.__globals__ }}",
    "files": "{% include '/etc/passwd' %}",
    "other templates": "{% import 'x' as y %}",
    "changed messages": "{{ messages.append(1) }}",
    "changed namespace": "{% set n = namespace() %}{% set n.__class__ = 1 %}{{ n }}",
    "a long range": "{% for i in range(10 ** 9) %}x{% endfor %}",
    "a very long range": "{% for i in range(999999999) %}{% endfor %}",
    "ranges in ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops over texts": "{% for i in 'x' * 9999 %}{% for j in 'x' * 9999 if j == 'y' %}{% endfor %}{% endfor %}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a repeated text": "{{ 'x' * 10 ** 9 }}",
    "a repeated list": "{{ ([1] * 99999) * 99999 }}",
    "a doubled text": "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "an added text": "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "an endless output": "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "a padded text": "{{ 'x'.ljust(10000000000) }}",
    "a centred text": "{{ 'x' | center(10000000000) }}",
    "an indented text": "{{ 'x' | tojson(indent=10000000000) }}",
    "a wide number": "{{ '%1000000000d' % 1 }}{{ '%1000000000d' | format(1) }}",
    "a wide format": "{{ '{:1000000000}'.format(1) }}",
    "replaced texts": "{{ ('x' * 99999) | replace('x', 'y' * 99999) }}",
    "texts replaced": "{{ ('x' * 99999).replace('x', 'y' * 99999) }}",
    "endless recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "filler": "{{ lipsum(n=1000000000) }}",
    "no template": "{% for %}",
    "what is not there": "{{ messages.nothing.at_all }}",
    "a wrong sum": "{{ messages + 1 }}",
}  # fmt: skip


@pytest.mark.parametrize("kind", HARMFUL)
def test_harmful_and_faulty_templates_are_refused_in_one_line(bundle: Callable[..., Bundle], kind: str) -> None:
    with pytest.raises(BundleError, match="its chat template cannot be rendered: ") as caught:
        render_chat(bundle(HARMFUL[kind]), CHATS[0])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_long_chats_are_rendered(bundle: Callable[..., Bundle]) -> None:
    messages = [{"role": "user", "content": "x" * 500}, {"role": "assistant", "content": "y" * 500}] * 500
    assert len(render_chat(bundle(CHATML), messages)) > 500_000


def test_without_jinja_the_message_says_what_to_install(
    bundle: Callable[..., Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "edgeformer.runtime.chat_sandbox", raising=False)
    monkeypatch.delattr("edgeformer.runtime.chat_sandbox", raising=False)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'edgeformer\[chat\]'"):
        render_chat(bundle(CHATML), CHATS[0])


def test_ids_of_a_chat_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    tokens = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, special=True) for token in ("<s>", "</s>", "<|im_start|>", "<|im_end|>")])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    original = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    for template in (CHATML, SYSTEM_INSIDE):
        text = theirs(template, CHATS[2], add_generation_prompt=True)
        ids = original.apply_chat_template(CHATS[2], chat_template=template, add_generation_prompt=True)["input_ids"]
        assert encode(tokenizer, text, special=False) == ids
        assert ids.count(0) == (2 if template is SYSTEM_INSIDE else 0)
