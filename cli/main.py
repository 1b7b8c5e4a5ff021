"""The `edgeformer` program: its commands, and what becomes of their errors.

Exit codes: 0; 1 where the user can act on it, with one message and no traceback; 2 for wrong usage. A bug shows its
traceback. Nothing heavy is imported before a command runs, so that --help answers at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from edgeformer.cli.bench import make_bench
from edgeformer.cli.doctor import doctor
from edgeformer.cli.export import export
from edgeformer.cli.inspect import inspect
from edgeformer.cli.optimize import optimize
from edgeformer.cli.plan import plan
from edgeformer.cli.run import run
from edgeformer.cli.targets import targets
from edgeformer.cli.verify import verify


class Commands(TyperGroup):
    """The group of all commands: one message for what a user can act on."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            flush()
            return result
        except KeyboardInterrupt:
            fail("interrupted")
        except Exception as error:
            if not can_act_on(error):
                raise
            fail(str(error))


def can_act_on(error: Exception) -> bool:
    """Whether it is an EdgeformerError; their module is not imported for it, since it comes with numpy."""
    errors = sys.modules.get("edgeformer.runtime.errors")
    return errors is not None and isinstance(error, errors.EdgeformerError)


def flush() -> None:
    """Write out what is still in standard output's buffer, while a failure can still be told."""
    from edgeformer.cli.printing import writing

    with writing():
        sys.stdout.flush()


def fail(message: str) -> NoReturn:
    # What standard output could not take would be tried again, and complained about, at exit.
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(1) from None


def print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"edgeformer {version('edgeformer')}")
        raise typer.Exit


app = typer.Typer(
    name="edgeformer",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it takes half the time
)


def edgeformer(
    _version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take a Transformer from PyTorch to where it must run.

    Example:
      edgeformer export checkpoint/ -o bundle/
      edgeformer optimize bundle/ --target ort-cpu
      edgeformer verify bundle/
      edgeformer run bundle/ "some text"
    """


def help_of(command: Callable[..., None]) -> str:
    """A docstring whose example keeps its lines: a backspace tells the help not to fold the paragraph."""
    return cleandoc(command.__doc__ or "").replace("\n\nExample:", "\n\n\b\nExample:")


# What the program's own help says of each, short enough for one line of 80 columns.
COMMANDS: dict[Callable[..., None], str] = {
    export: "Make a bundle of a checkpoint or of a module of your own.",
    optimize: "Add an artifact for a target to a bundle.",
    verify: "Check a bundle's files, and its outputs against PyTorch's.",
    run: "Generate texts, or let an encoder do what its head is for.",
    inspect: "Show what a bundle holds, and what of it can run here.",
    plan: "Show what memory each artifact takes, and what would fit.",
    targets: "List targets, what each can do, and where it has run.",
    doctor: "Show the machine, its packages, and which backends run here.",
}
app.callback(help=help_of(edgeformer))(edgeformer)
for command, short_help in COMMANDS.items():
    app.command(help=help_of(command), short_help=short_help)(command)
app.add_typer(make_bench(help_of), name="bench", short_help="Measure; compare records; make a page of them.")


def main() -> None:
    """What the console script calls."""
    app(prog_name="edgeformer")
