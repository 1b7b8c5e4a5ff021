"""`edgeformer bench`: how fast a bundle is here, whether two runs differ, and a page to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

DEFAULT = "run"


class DefaultsToRun(TyperGroup):
    """A group whose first command is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else [DEFAULT, *args])


def run(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder made by `edgeformer export`.")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Inputs to measure with.")] = None,
    inputs: Annotated[
        Path | None,
        typer.Option("--inputs", metavar="FILE", help="Read one input a line; the bundle's samples by default."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay", metavar="FILE", help='Serve prompts at their times: lines of {"at": seconds, "text": "..."}.'
        ),
    ] = None,
    artifact: Annotated[
        list[str] | None,
        typer.Option(
            "--artifact", metavar="NAME", help="What to measure, may be repeated; all that run here by default."
        ),
    ] = None,
    batch: Annotated[
        list[str] | None, typer.Option("--batch", "--batch-size", metavar="N,N", help="Inputs of a call; 1 by default.")
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option("--prompt", metavar="N,N", help="Tokens of an input, instead of inputs of your own."),
    ] = None,
    new_tokens: Annotated[
        list[str] | None, typer.Option("--new-tokens", metavar="N,N", help="Tokens to give every row, no fewer.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", help="Most tokens to generate; the checkpoint's by default.")
    ] = None,
    num_beams: Annotated[
        list[str] | None, typer.Option("--num-beams", metavar="N,N", help="Beams of a search; 1 by default.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="How often everything is measured.")] = 10,
    warmup: Annotated[int, typer.Option("--warmup", help="Rounds before them that are not measured.")] = 2,
    seed: Annotated[int, typer.Option("--seed", help="Of the order, and of prompts of a given length.")] = 0,
    threads: Annotated[int | None, typer.Option("--threads", help="Cores to use; all by default.")] = None,
    spin: Annotated[
        str, typer.Option("--spin", metavar="WHEN", help="When waiting threads keep cores busy: steps, always, never.")
    ] = "steps",
    calls_only: Annotated[
        bool, typer.Option("--calls-only", help="Leave out load time, peak memory, ceilings and energy.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the record to this file as well.")
    ] = None,
) -> None:
    """Measure latency, throughput, memory and energy of each artifact; `run` need not be said.

    A call takes a batch from texts to texts; it has a first token and further ones. Give lengths for a grid, texts of
    your own, or a file of prompts with their times. `edgeformer bench compare` tells whether records differ, and
    `edgeformer bench report` makes a page of them.

    Example:
      edgeformer bench bundle/ --batch 1,8 --prompt 16,64 --new-tokens 32 -o today.json
      edgeformer bench bundle/ --inputs words.txt --batch 1,64
      edgeformer bench compare before.json today.json --fail-if "p90 > +5%"
      edgeformer bench report today.json -o today.html
    """
    from edgeformer.cli import printing, progress
    from edgeformer.cli.benching import tables
    from edgeformer.cli.benching.artifacts import check, measure_artifact
    from edgeformer.cli.benching.encoding import open_subject
    from edgeformer.cli.benching.planning import Asked, make_setup
    from edgeformer.cli.benching.records import make_record
    from edgeformer.runtime.cores import Cores

    cores = Cores(threads, spin)  # type: ignore[arg-type]  # checked there
    asked = Asked(
        texts or [], inputs, replay, batch, prompt, new_tokens, max_new_tokens, num_beams, rounds, warmup, seed,
        cores, calls_only,
    )  # fmt: skip
    asked.check()
    names = artifact or runnable(bundle)
    model = open_subject(bundle, names[0], cores)  # which imports its library
    setup, prompts = make_setup(model, bundle, asked)
    check(model, setup.plan)
    del model  # whose memory would count
    with progress.counting("calls", setup.steps * len(names)) as on_done:
        record = make_record(setup, [measure_artifact(setup, name, on_done) for name in names], prompts)
    if as_json:
        printing.print_json(record)
    else:
        tables.print_record(record)
    if output is not None:
        printing.write_json(output, record)


def runnable(folder: Path) -> list[str]:
    """The artifacts that run here.

    Raises:
        BundleError: the bundle is missing or damaged.
        BackendUnavailableError: nothing runs here.
    """
    from edgeformer.runtime.backends import lacking
    from edgeformer.runtime.bundle import read_manifest
    from edgeformer.runtime.loading import choose

    artifacts = read_manifest(folder).artifacts
    return [a.name for a in artifacts if lacking(a) is None] or [choose(folder, None).name]


def compare(
    records: Annotated[
        list[Path], typer.Argument(metavar="RECORD", help="Two or more; the first is what others are held against.")
    ],
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="RULE",
            help='Exit with 1 where this holds, such as "p90 > +5%" or "tokens_per_second < -3%"; may be repeated.',
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Tell whether records differ by more than chance, cell by cell.

    A rule is a metric, a comparison, and a percentage that the metric changes by. It counts only where the change is no
    chance. Metrics: p50, p90, p99 of a call, or of ttft, itl and e2e as in itl.p99; tokens_per_second,
    tokens_per_second_per_user, inputs_per_second, load.cold, load.warm, memory.host, memory.device, joules_per_token.

    Example:
      edgeformer bench compare before.json after.json
      edgeformer bench compare before.json after.json --fail-if "p90 > +5%" --fail-if "itl.p50 > +3%"
    """
    from edgeformer.cli import printing
    from edgeformer.cli.benching import comparing, gates, tables
    from edgeformer.cli.benching.records import read_record

    if len(records) < 2:
        raise typer.BadParameter("give at least two records")
    try:
        rules = [gates.parse(text) for text in fail_if or []]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--fail-if") from error
    base, *others = [(str(path), read_record(path)) for path in records]
    found = [comparing.compare(base, other) for other in others]
    broken = [line for one in found for rule in rules for line in gates.broken(rule, one.pairs)]
    if as_json:
        printing.print_json({"comparisons": [one.values() for one in found], "broken": broken})
    else:
        for one in found:
            tables.print_comparison(one)
    if broken:
        raise gates.RuleError("what --fail-if forbids", broken)


def report(
    records: Annotated[list[Path], typer.Argument(metavar="RECORD", help="What `edgeformer bench -o` wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The page; standard output by default.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="html|md|png", help="By the output's name by default, or html.")
    ] = None,
) -> None:
    """Make a page of records: latencies, throughput against batch, roofline, power and clocks over time.

    The page is one file, and asks nothing of any network. A picture needs matplotlib.

    Example:
      edgeformer bench report today.json -o today.html
      edgeformer bench report before.json after.json --format md
    """
    from edgeformer.cli.benching.records import read_record
    from edgeformer.cli.benching.reports import format_of, write_report

    chosen = format_of(form, output)
    write_report([(path.stem, read_record(path)) for path in records], chosen, output)


def make_bench(help_of: Callable[..., str]) -> typer.Typer:
    """The group of these commands, their help made by the program's own function."""
    app = typer.Typer(
        cls=DefaultsToRun,
        help="Measure latency, throughput, memory and energy; compare records; make a page of them.",
        add_completion=False,
        rich_markup_mode=None,
    )
    for command in (run, compare, report):
        app.command(help=help_of(command))(command)
    return app
