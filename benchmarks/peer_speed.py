"""How fast this project and its peers are on this CPU: the same weights, inputs and threads, in alternating rounds.

    python benchmarks/peer_speed.py decoder -o build/peers/decoder.json --markdown build/peers/decoder.md
    python benchmarks/peer_speed.py encoder
    python benchmarks/peer_speed.py paper
    python benchmarks/peer_speed.py decoder --shape tiny --peers edgeformer transformers llama.cpp   # to try it

A checkpoint of random weights is written once, in each peer's environment it becomes the peer's model, and worker
processes of all engines take turns. Environments, models and logs are kept in build/peers; ours is exported anew at
each run, unless --reuse is given. What a peer can't do is printed with its reason. Needs the extra `all`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

import peer_catalogue
import peer_report
from arguments import positive
from ending import end_by
from peer_catalogue import KINDS, OURS, REFERENCE, Peer
from peer_environment import PeerError, call_quietly, peer_python
from peer_report import Contender
from peer_rounds import Ran, run_rounds
from peer_works import Planned, plan
from random_checkpoints import WRITERS, Shape
from rich.console import Console
from taking_turns import Engine

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.runtime.cores import usable_cores

BATCHES = {"decoder": [1, 8, 32], "encoder": [1, 8], "paper": [1, 32]}
NAMES = [peer.name for peer in peer_catalogue.ALL]

console = Console(stderr=True, highlight=False)


@dataclasses.dataclass(slots=True)
class Prepared:
    """Engines that can be started, and why others can't."""

    engines: list[Engine] = dataclasses.field(default_factory=list)
    contenders: list[Contender] = dataclasses.field(default_factory=list)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)


def prepare(options: argparse.Namespace, shape: Shape) -> Prepared:
    """Make environments and models that are missing."""
    found, models = Prepared(), options.folder / "models" / f"{options.kind}-{options.shape}"
    checkpoint = models / "checkpoint"
    if not checkpoint.exists():
        console.print("making random weights")
        write, _ = WRITERS[options.kind]
        partial = models / "checkpoint.partial"
        shutil.rmtree(partial, ignore_errors=True)
        write(partial, shape)
        partial.rename(checkpoint)
    if OURS in options.peers and not options.reuse:
        shutil.rmtree(models / OURS, ignore_errors=True)
    for peer in peer_catalogue.ALL:
        if peer.name in options.peers:
            prepare_peer(peer, options, checkpoint, models, found)
    return found


def prepare_peer(peer: Peer, options: argparse.Namespace, checkpoint: Path, models: Path, found: Prepared) -> None:
    if options.kind not in peer.formats:
        found.missing[peer.name] = peer.lacking[options.kind]
        return
    try:
        console.print(f"looking after {peer.name}")
        python = (
            Path(sys.executable) if peer.name == OURS else peer_python(options.folder / peer.stem, peer.requirements)
        )
    except PeerError as error:
        found.missing[peer.name] = str(error)
        return
    for form, bits in peer.formats[options.kind].items():
        name = f"{peer.name} {form}"
        if options.bits and bits not in options.bits:
            continue
        try:
            model, disk = prepare_model(peer, python, form, options.kind, checkpoint, models)
        except PeerError as error:
            found.missing[name] = str(error)
            continue
        command = (str(python), str(peer.program), "work", options.kind, str(model), "--format", form)
        found.engines.append(Engine(name, command))
        found.contenders.append(Contender(name, peer.name == OURS, bits, disk))


def prepare_model(peer: Peer, python: Path, form: str, kind: str, checkpoint: Path, models: Path) -> tuple[Path, int]:
    """The folder of a model, converted where it is missing, and the bytes that its files have.

    Our formats share a bundle, in which each has a folder.
    """
    ours = peer.name == OURS
    model = models / OURS if ours else models / f"{peer.stem}-{form}"
    files = model / f"ort-cpu-{form}" if ours else model
    if not files.exists():
        console.print(f"converting for {peer.name} {form}")
        partial = model if ours else models / f"{peer.stem}-{form}.partial"
        if not ours:
            shutil.rmtree(partial, ignore_errors=True)
        log = models / f"{peer.stem or OURS}-{form}.log"
        command = [str(python), str(peer.program), "convert", kind, str(checkpoint), str(partial), "--format", form]
        call_quietly(command, log)
        if not ours:
            partial.rename(model)
    return model, sum(path.stat().st_size for path in files.rglob("*") if path.is_file())


def measure(options: argparse.Namespace, works: list[Planned], found: Prepared) -> dict[str, Ran]:
    file = options.folder / f"works-{options.kind}-{options.shape}.json"
    file.write_text(json.dumps({work.name: work.given for work in works}), encoding="utf-8")
    names = [work.name for work in works]
    ran, missing = run_rounds(found.engines, names, file, options.threads, options.rounds, console.print)
    found.missing |= missing
    return ran


def run(options: argparse.Namespace) -> None:
    load_average = os.getloadavg()[0]
    shape = shapes(options.kind)[options.shape]
    options.folder.mkdir(parents=True, exist_ok=True)
    works = plan(options.kind, shape, options.batches, options.new_tokens, options.sentences)
    found = prepare(options, shape)
    if options.only_prepare:
        for name, reason in found.missing.items():
            print_line(f"{name}: {reason}")
        return
    ran = measure(options, works, found)
    references = [REFERENCE, *(c.name for c in found.contenders if c.ours and c.bits == 32)]
    report = {
        "kind": options.kind,
        "shape_name": options.shape,
        "shape": dataclasses.asdict(shape),
        "threads": options.threads,
        "rounds": options.rounds,
        "load_average": load_average,
        "machine": dataclasses.asdict(this_machine()),
        "engines": {c.name: engine_entry(c, ran[c.name]) for c in found.contenders if c.name in ran},
        "missing": found.missing,
        "works": [peer_report.summarize(work, found.contenders, ran, references, options.kind) for work in works],
    }
    print_report(report)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.output, report)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(peer_report.markdown(report), encoding="utf-8")


def engine_entry(contender: Contender, ran: Ran) -> dict[str, object]:
    return {
        "ours": contender.ours,
        "bits": contender.bits,
        "disk_bytes": contender.disk_bytes,
        "load_seconds": ran.description["load_seconds"],
        "start_seconds": ran.start_seconds,
        "loaded_rss_mib": ran.description["peak_rss_mib"],
        "versions": ran.description["versions"],
    }


def print_report(report: dict[str, object]) -> None:
    print_line(peer_report.headline(report))
    print_line()
    for title, (columns, rows) in peer_report.tables(report):
        print_line(title)
        print_table(columns, rows, numbers=[c for c in columns if c not in ("engine", "work", "why not", "versions")])


def shapes(kind: str) -> dict[str, Shape]:
    return WRITERS[kind][1]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--shape", help="135m (decoder) or base, by default; tiny, to try")
    parser.add_argument("--peers", nargs="+", choices=NAMES, default=NAMES, metavar="PEER", help=", ".join(NAMES))
    parser.add_argument("--bits", nargs="+", type=int, choices=(4, 8, 32), help="all by default")
    parser.add_argument("--batches", nargs="+", type=positive)
    parser.add_argument("--new-tokens", type=positive, default=32, help="of every row that is generated; at least 2")
    parser.add_argument("--sentences", type=positive, default=32, help="that an encoder reads")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--threads", type=positive, default=usable_cores())
    parser.add_argument("--folder", type=Path, default=Path("build/peers"), help="environments, models and logs")
    parser.add_argument("--reuse", action="store_true", help="our bundle as an earlier run left it")
    parser.add_argument("--only-prepare", action="store_true", help="environments and models alone")
    parser.add_argument("-o", "--output", type=Path, metavar="JSON", help="write everything here as well")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here as well")
    options = parser.parse_args(arguments)
    options.shape = options.shape or next(iter(shapes(options.kind)))
    if options.shape not in shapes(options.kind):
        parser.error(f"--shape {options.shape}: {options.kind} has {', '.join(shapes(options.kind))}")
    if options.new_tokens < 2:
        parser.error(f"--new-tokens is {options.new_tokens}, expected at least 2")
    options.batches = options.batches or BATCHES[options.kind]
    options.folder = options.folder.resolve()
    return options


def main() -> None:
    end_by(lambda: run(parse()))


if __name__ == "__main__":
    main()
