"""Templates of strangers, rendered without giving them the machine.

Jinja's sandbox keeps a template from Python's internals. What it does not bound is bounded here: loops, and the size of
what a template joins, repeats or pads.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MOST_STEPS = 1_000_000  # of all loops together
MOST_CHARACTERS = 10_000_000  # of the text, and of each part that it is made of
LARGEST_ARGUMENT = 100_000  # of what pads and repeats
WIDE = re.compile(r"[%:{][^a-zA-Z%]*\d{6}|%[^a-zA-Z%]*\*")  # a format for more characters than that
COUNTED, BOUNDED = "each step counted", "size bounded"  # filters that no template can name


class RefusedError(Exception):
    """The template itself says that it does not take these messages."""


class TemplateFaultError(Exception):
    """The template has a fault, or does what no template may."""


def render(source: str, variables: Mapping[str, Any]) -> str:
    """Render a template.

    Raises:
        RefusedError: it calls `raise_exception`.
        TemplateFaultError: it is no template, uses what is not there, or does what no template may.
    """
    sandbox = Sandbox()
    text = ""
    try:
        for part in sandbox.from_string(source).generate(variables):
            text = sandbox.bounded(text + part)
    except (TemplateError, ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        raise TemplateFaultError(message if len(message) <= 200 else f"{message[:197]}...") from error
    return text


class GenerationTag(Extension):
    """`{% generation %}` marks what an assistant says, for training; here it is shown like all else."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one rendering, with what transformers gives to its templates."""

    intercepted_binops = frozenset(("*", "**", "%", "+"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        self.steps = 0
        self.filters = {name: modest(function) for name, function in self.filters.items()}
        self.filters |= {"tojson": modest(to_json), COUNTED: self.counted, BOUNDED: self.bounded}
        self.globals |= {"raise_exception": refuse, "strftime_now": strftime_now, "namespace": PlainNamespace}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template: nodes.Template = Bounding().visit(super()._parse(source, name, filename))
        return template

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"it asks for {attribute!r} of a {type(obj).__name__}, which is not for templates")

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise SecurityError(f"its loops take more than {MOST_STEPS:,} steps")
            yield value

    def bounded(self, text: Any) -> Any:
        if isinstance(text, (str, list, tuple)) and len(text) > MOST_CHARACTERS:
            raise SecurityError(f"it makes more than {MOST_CHARACTERS:,} characters")
        return text

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        times = magnitude(left) * magnitude(right) if operator == "*" else 0
        if times > MOST_CHARACTERS or (operator == "**" and magnitude(right) * magnitude(left) > LARGEST_ARGUMENT):
            raise SecurityError(f"{left!r:.20} {operator} {right!r:.20} is larger than a chat needs")
        if operator == "%" and isinstance(left, str):
            check_format(left)
        return self.bounded(super().call_binop(context, operator, left, right))

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            check_modest(args, kwargs)
            check_format(owner if function.__name__ in ("format", "format_map") else "")
            check_growth(owner if function.__name__ == "replace" else "", *args[:2])
        elif function is self.globals["lipsum"]:
            check_modest(args, kwargs)
        return self.bounded(super().call(context, function, *args, **kwargs))


class Bounding(NodeTransformer):
    """Counts the steps of loops, and bounds what `~` joins."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - as Jinja calls it
        node.iter = through(COUNTED, node.iter)
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return through(BOUNDED, self.generic_visit(node))


def through(name: str, node: nodes.Node) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class PlainNamespace(Namespace):
    """A namespace without names that Python itself uses."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        for name in dict(*args[1:], **kwargs):
            check_name(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        check_name(name)
        super().__setitem__(name, value)


def check_name(name: str) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"it sets {name!r}: names in a namespace begin with a letter")


def magnitude(value: Any) -> float:
    if isinstance(value, (str, list, tuple)):
        return len(value)
    return abs(value) if isinstance(value, (int, float)) else 0


def modest(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose arguments, but for the value itself, are no large numbers, nor formats for them."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        value = 1 if hasattr(function, "jinja_pass_arg") else 0
        check_modest(args[value + 1 :], kwargs)
        if function.__name__ == "do_format":
            check_format(str(args[value]))
        if function.__name__ == "do_replace":
            check_growth(str(args[value]), *args[value + 1 : value + 3])
        return function(*args, **kwargs)

    return checked


def check_modest(args: Iterable[Any], kwargs: Mapping[str, Any]) -> None:
    if large := [value for value in (*args, *kwargs.values()) if isinstance(value, int) and value > LARGEST_ARGUMENT]:
        raise SecurityError(f"it pads or repeats by {large[0]!r:.30}, more than {LARGEST_ARGUMENT:,}")


def check_format(text: str) -> None:
    if WIDE.search(text):
        raise SecurityError(f"its format {text!r:.40} is for more than {LARGEST_ARGUMENT:,} characters")


def check_growth(text: str, old: Any = "", new: Any = "") -> None:
    if (text.count(str(old)) if text else 0) * len(str(new)) > MOST_CHARACTERS:
        raise SecurityError(f"it makes more than {MOST_CHARACTERS:,} characters")


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, where Jinja's own filter makes it safe for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(pattern: str) -> str:
    check_format(pattern)
    return datetime.now().strftime(pattern)


def refuse(message: str) -> NoReturn:
    raise RefusedError(message)
