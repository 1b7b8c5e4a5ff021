"""How often the letters-to-phonemes example is right: in PyTorch, and in every artifact of its bundle.

    python benchmarks/g2p_accuracy.py --data g014b2b.test -o accuracy.json

The list has one pronunciation a line, `WORD<tab>PHONEMES`; a word may have several, and is right if it equals one of
them (WER). PER is the edit distance to the nearest one, summed, over the summed lengths of those. Every artifact is
also compared with PyTorch token for token: exit code 1 if one of full precision differs anywhere.

PyTorch computes everything anew at each step, which takes minutes for a long list: --agreement-words 2000 lets it say
the first 2,000 words alone. Needs the extra `all`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from arguments import positive
from ending import end_by
from pronunciations import ErrorRates, Phonemes, error_rates, read_pronunciations
from rich.console import Console
from torch_search import Checkpoint

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.cli.progress import counting
from edgeformer.cli.requirements import installed_versions
from edgeformer.models.weight_files import WEIGHTS
from edgeformer.runtime import GenerationConfig, load
from edgeformer.runtime.backends import lacking
from edgeformer.runtime.bundle import read_manifest, sha256

NUM_BEAMS = 4
SHOWN = 20  # differences from PyTorch that are written out
console = Console(stderr=True, highlight=False)

Ids = list[tuple[int, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """What one engine said of the words, in their order."""

    ids: Ids
    texts: list[str]
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A word that an artifact says otherwise than PyTorch; the log-probabilities of both are PyTorch's."""

    word: str
    pytorch: str
    artifact: str
    pytorch_log_prob: float
    artifact_log_prob: float


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One engine with one search.

    Attributes:
        compared, equal: words that PyTorch has said as well, and those of them with the same tokens.
        must_be_equal: whether a difference is a fault: full precision may not have one.
        differences: the first of them.
    """

    engine: str
    precision: str
    num_beams: int
    rates: ErrorRates
    compared: int
    equal: int
    must_be_equal: bool
    differences: tuple[Difference, ...]
    seconds: float

    @property
    def failed(self) -> bool:
        return self.must_be_equal and self.equal < self.compared


def search_config(checkpoint: Checkpoint, num_beams: int) -> GenerationConfig:
    """How this benchmark searches: as the checkpoint ends a search, and with a length penalty of 1."""
    return GenerationConfig(
        max_new_tokens=checkpoint.options.max_new_tokens or checkpoint.model.config.max_positions,
        num_beams=num_beams,
        length_penalty=1.0,
        early_stopping=checkpoint.options.early_stopping,
    )


def measure(
    checkpoint: Checkpoint, words: dict[str, list[Phonemes]], agreement_words: int, bundle: Path, names: Sequence[str],
    threads: int | None,
) -> Iterator[Result]:  # fmt: skip
    """Every search in PyTorch, and then in every artifact.

    Args:
        checkpoint: what the bundle was made from.
        words: with their references.
        agreement_words: how many of them, from the first, PyTorch says.
        bundle: the bundle's folder.
        names: artifacts of it.
        threads: of the artifacts; all cores where it is None.
    """
    configs = [search_config(checkpoint, beams) for beams in (1, NUM_BEAMS)]
    first, in_pytorch = list(words)[:agreement_words], dict[int, Said]()
    for config in configs:
        with announced("PyTorch", config, len(first)) as on_done:
            begin = time.perf_counter()
            ids = [tuple(row) for row in checkpoint.say(first, config, on_done)]
            seconds = time.perf_counter() - begin
        said = in_pytorch[config.num_beams] = Said(ids, [checkpoint.spell(row) for row in ids], seconds)
        yield judge("PyTorch", "fp32", config, words, said, said, checkpoint)
    for name in names:
        model = load(bundle, name, threads=threads)
        for config in configs:
            with announced(name, config, len(words)) as on_done:
                begin = time.perf_counter()
                found = model.generate(list(words), config, on_done=on_done)
                seconds = time.perf_counter() - begin
            said = Said([generation.token_ids for generation in found], [g.text for g in found], seconds)
            precision = model.artifact.precision
            yield judge(name, precision, config, words, said, in_pytorch[config.num_beams], checkpoint)


def judge(
    engine: str, precision: str, config: GenerationConfig, words: dict[str, list[Phonemes]], said: Said,
    in_pytorch: Said, checkpoint: Checkpoint,
) -> Result:  # fmt: skip
    """Compare what was said with the references, and with what PyTorch said of the first words."""
    rates = error_rates(said.texts, list(words.values())[: len(said.texts)])
    pairs = list(zip(words, in_pytorch.ids, said.ids, strict=False))
    differing = [i for i, (_, expected, got) in enumerate(pairs) if expected != got]
    return Result(
        engine=engine,
        precision=precision,
        num_beams=config.num_beams,
        rates=rates,
        compared=len(pairs),
        equal=len(pairs) - len(differing),
        must_be_equal=precision == "fp32",
        differences=tuple(
            Difference(
                word=pairs[i][0],
                pytorch=in_pytorch.texts[i],
                artifact=said.texts[i],
                pytorch_log_prob=checkpoint.log_prob(pairs[i][0], in_pytorch.ids[i]),
                artifact_log_prob=checkpoint.log_prob(pairs[i][0], said.ids[i]),
            )
            for i in differing[:SHOWN]
        ),
        seconds=said.seconds,
    )


def announced(engine: str, config: GenerationConfig, words: int) -> AbstractContextManager[Callable[[int], None]]:
    """Say what begins, and count words."""
    console.print(f"{engine}, {search_name(config.num_beams)}")
    return counting("words", words)


def search_name(beams: int) -> str:
    return "greedy" if beams == 1 else f"beam {beams}"


def describe(result: Result) -> dict[str, Any]:
    rates = {"wer": result.rates.wer, "per": result.rates.per}
    return {**dataclasses.asdict(result), **rates, "search": search_name(result.num_beams), "failed": result.failed}


def print_results(results: Sequence[Result]) -> None:
    columns = ["engine", "search", "words", "WER %", "PER %", "equal to PyTorch", "seconds"]
    rows = [
        (
            result.engine, search_name(result.num_beams), f"{result.rates.words}", f"{result.rates.wer:.2f}",
            f"{result.rates.per:.2f}", f"{result.equal} of {result.compared}{' FAILED' * result.failed}",
            f"{result.seconds:.1f}",
        )
        for result in results
    ]  # fmt: skip
    print_table(columns, rows, numbers=columns[2:])
    for result in results:
        if result.failed:
            for differing in result.differences:
                print_line(
                    f"{result.engine} {search_name(result.num_beams)}, {differing.word}: {differing.artifact} "
                    f"({differing.artifact_log_prob:.6f}), in PyTorch {differing.pytorch} "
                    f"({differing.pytorch_log_prob:.6f})"
                )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the list of pronunciations")
    parser.add_argument("--checkpoint", type=Path, default=Path("examples/g2p/checkpoint"))
    parser.add_argument("--bundle", type=Path, default=Path("build/g2p"), help="made from the checkpoint")
    parser.add_argument("--artifact", action="append", metavar="NAME", help="may be repeated; all that run by default")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N words alone")
    parser.add_argument("--agreement-words", type=positive, metavar="N", help="words that PyTorch says; default: all")
    parser.add_argument("--threads", type=positive, help="cores to use; all by default")
    parser.add_argument("-o", "--output", type=Path, metavar="JSON", help="write everything here as well")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> bool:
    """Measure, print and write; whether nothing failed."""
    if options.threads:
        torch.set_num_threads(options.threads)
    words = dict(list(read_pronunciations(options.data).items())[: options.limit])
    checkpoint = Checkpoint(options.checkpoint)
    runnable = [a.name for a in read_manifest(options.bundle).artifacts if lacking(a) is None]
    agreement_words = min(options.agreement_words or len(words), len(words))
    names = options.artifact or runnable
    results = list(measure(checkpoint, words, agreement_words, options.bundle, names, options.threads))
    print_results(results)
    if options.output:
        report = {
            "data": {"name": options.data.name, "sha256": sha256(options.data), "words": len(words)},
            "model_sha256": sha256(options.checkpoint / WEIGHTS),
            "generation": [dataclasses.asdict(search_config(checkpoint, beams)) for beams in (1, NUM_BEAMS)],
            "threads": options.threads,
            "machine": dataclasses.asdict(this_machine()),
            "versions": installed_versions(),
            "results": [describe(result) for result in results],
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.output, report)
    return not any(result.failed for result in results)


def main() -> None:
    end_by(work)


def work() -> None:
    if not run(parse()):
        sys.exit("error: an artifact of full precision does not say what PyTorch says")


if __name__ == "__main__":
    main()
