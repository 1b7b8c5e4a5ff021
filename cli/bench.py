"""`edgeformer bench`: how fast a bundle is here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from edgeformer.cli.measuring import ArtifactMeasurements, Percentiles, Source
    from edgeformer.runtime import Model


def bench(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder made by `edgeformer export`.")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Inputs to measure with.")] = None,
    inputs: Annotated[
        Path | None,
        typer.Option("--inputs", metavar="FILE", help="Read one input a line; the bundle's samples by default."),
    ] = None,
    artifact: Annotated[
        list[str] | None,
        typer.Option(
            "--artifact", metavar="NAME", help="What to measure, may be repeated; all that run here by default."
        ),
    ] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option("--batch-size", help="Inputs of a call, may be repeated; 1 by default.")
    ] = None,
    num_beams: Annotated[
        list[int] | None, typer.Option("--num-beams", help="Beams of a search, may be repeated; 1 by default.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", help="Most tokens to generate; the checkpoint's by default.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", help="How often all inputs are measured.")] = 10,
    warmup: Annotated[int, typer.Option("--warmup", help="Rounds before them that are not measured.")] = 2,
    threads: Annotated[int | None, typer.Option("--threads", help="Cores to use; all by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON to this file as well.")
    ] = None,
) -> None:
    """Measure latency, throughput and memory of each artifact, for each batch size and number of beams.

    A call takes a batch from texts to texts; it has a first token and further ones. Artifacts are measured one after
    another: name one with --artifact for a peak of memory that no other has a part in.

    Example:
      edgeformer bench bundle/ --inputs words.txt --batch-size 1 --batch-size 64
    """
    import dataclasses

    from edgeformer.cli import printing, progress, requirements
    from edgeformer.cli.machine import this_machine
    from edgeformer.cli.measuring import Plan, measure_artifact
    from edgeformer.cli.run import options
    from edgeformer.runtime import load
    from edgeformer.runtime.errors import OptionError

    for name, value, least in (("rounds", rounds, 1), ("warmup", warmup, 0), ("batch_size", min(batch_size or [1]), 1)):
        if value < least:
            raise OptionError(f"{name} is {value}, expected at least {least}")
    names = artifact or runnable(bundle)
    model = load(bundle, names[0], threads=threads)  # which imports its library
    configs = [
        options(model.generation_config, num_beams=beams, num_return_sequences=1, max_new_tokens=max_new_tokens)
        for beams in num_beams or [1]
    ]
    for config in configs:
        model.limits(config)  # what the model cannot do is refused before anything is measured
    sources = read_sources(model, texts or [], inputs)
    del model  # whose memory would count
    plan = Plan(sources, configs, batch_size or [1], rounds, warmup, threads)
    with progress.counting("calls", plan.calls * len(names)) as on_done:
        results = [measure_artifact(bundle, name, plan, on_done) for name in names]

    report: dict[str, Any] = {
        "bundle": str(bundle),
        "machine": dataclasses.asdict(this_machine()),
        "versions": requirements.installed_versions(),
        "inputs": len(sources),
        "rounds": rounds,
        "warmup": warmup,
        "threads": threads,
        "max_new_tokens": configs[0].max_new_tokens,
        "artifacts": [dataclasses.asdict(result) for result in results],
    }
    if as_json:
        printing.print_json(report)
    else:
        print_results(results, report["machine"], report["versions"])
    if output is not None:
        printing.write_json(output, report)


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


def read_sources(model: Model, texts: list[str], file: Path | None) -> list[Source]:
    """Texts that were given, else the ids of the bundle's samples.

    Raises:
        InputError: a file that is empty or cannot be read, or a text that the model cannot take.
    """
    from edgeformer.cli.inputs import encode, given
    from edgeformer.runtime.errors import InputError

    if not texts and file is None:
        return [sample.source_ids for sample in model.bundle.manifest.golden]
    lines = list(given(texts, file))
    if not lines:
        raise InputError(f"{file} is empty: give at least one line")
    encode(model, lines)
    return [line.text for line in lines]


def print_results(results: list[ArtifactMeasurements], machine: dict[str, Any], versions: dict[str, str]) -> None:
    from edgeformer.cli.printing import print_line, print_table, size

    def cell(latency: Percentiles | None) -> str:
        return f"{latency.p50:.2f} / {latency.p90:.2f} / {latency.p99:.2f}" if latency else "-"

    shown = ("edgeformer", "onnxruntime", "numpy")
    used = ", ".join(f"{package} {versions[package]}" for package in shown if package in versions)
    print_line(f"{machine['cpu']}, {machine['cores']} cores, {machine['os']}, Python {machine['python']}, {used}")
    print_line("latencies in ms: p50 / p90 / p99")
    columns = [
        "artifact",
        "batch",
        "beams",
        "call",
        "first token",
        "next token",
        "inputs/s",
        "tokens/s",
        "load",
        "peak",
    ]
    rows = [
        (result.artifact, str(m.batch_size), str(m.num_beams), cell(m.call_ms), cell(m.first_token_ms),
         cell(m.per_token_ms), f"{m.inputs_per_second:.1f}", f"{m.tokens_per_second:.1f}",
         f"{result.load_seconds:.2f} s", "-" if m.peak_rss is None else size(m.peak_rss))
        for result in results for m in result.measurements
    ]  # fmt: skip
    print_table(columns, rows, numbers=columns[1:])
