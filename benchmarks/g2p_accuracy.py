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
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from pronunciations import ErrorRates, Phonemes, error_rates, read_pronunciations
from rich.console import Console
from tokenizers import Tokenizer
from torch_search import search

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.cli.progress import counting
from edgeformer.cli.reports import cannot_run
from edgeformer.cli.requirements import installed_versions
from edgeformer.exporter.reference import log_probs
from edgeformer.models.checkpoint import WEIGHTS, load_checkpoint
from edgeformer.models.transformer import Transformer
from edgeformer.runtime import GenerationConfig, load
from edgeformer.runtime.bundle import read_manifest, sha256
from edgeformer.runtime.errors import EdgeformerError
from edgeformer.runtime.text import encode

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


class Checkpoint:
    """The model in PyTorch, with its tokenizers and its own options of generation."""

    def __init__(self, folder: Path) -> None:
        self.model: Transformer = load_checkpoint(folder)
        self.source = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.target = Tokenizer.from_file(str(folder / "target_tokenizer.json"))
        options = folder / "generation_config.json"
        own = json.loads(options.read_text(encoding="utf-8")) if options.exists() else {}
        self.options = GenerationConfig.from_dict(own)

    def config(self, num_beams: int) -> GenerationConfig:
        """How this benchmark searches: as the checkpoint ends a search, and with a length penalty of 1."""
        return GenerationConfig(
            max_new_tokens=self.options.max_new_tokens or self.model.config.max_positions,
            num_beams=num_beams,
            length_penalty=1.0,
            early_stopping=self.options.early_stopping,
        )

    def encode(self, word: str) -> list[int]:
        return encode(self.source, word, special=True)

    def say(self, words: Sequence[str], config: GenerationConfig, on_done: Callable[[int], None]) -> Said:
        begin = time.perf_counter()
        found = search(self.model, [self.encode(word) for word in words], config, on_done)
        seconds = time.perf_counter() - begin
        return Said([tuple(ids) for ids in found], [self.target.decode(ids) for ids in found], seconds)

    def difference(self, word: str, mine: Said, other: Said, at: int) -> Difference:
        likely = [sum(log_probs(self.model, self.encode(word), said.ids[at])) for said in (mine, other)]
        return Difference(word, mine.texts[at], other.texts[at], *likely)


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
    configs = [checkpoint.config(beams) for beams in (1, NUM_BEAMS)]
    first, reference = list(words)[:agreement_words], dict[int, Said]()

    def result(engine: str, precision: str, config: GenerationConfig, said: Said) -> Result:
        own = reference[config.num_beams]
        rates = error_rates(said.texts, list(words.values())[: len(said.texts)])
        differing = [i for i in range(len(first)) if said.ids[i] != own.ids[i]]
        shown = tuple(checkpoint.difference(first[i], own, said, i) for i in differing[:SHOWN])
        exact, equal = precision == "fp32", len(first) - len(differing)
        return Result(engine, precision, config.num_beams, rates, len(first), equal, exact, shown, said.seconds)

    for config in configs:
        with announced("PyTorch", config, len(first)) as on_done:
            reference[config.num_beams] = said = checkpoint.say(first, config, on_done)
        yield result("PyTorch", "fp32", config, said)
    for name in names:
        model = load(bundle, name, threads=threads)
        for config in configs:
            with announced(name, config, len(words)) as on_done:
                begin = time.perf_counter()
                found = model.generate(list(words), config, on_done=on_done)
                seconds = time.perf_counter() - begin
            said = Said([generation.token_ids for generation in found], [g.text for g in found], seconds)
            yield result(name, model.artifact.precision, config, said)


def announced(engine: str, config: GenerationConfig, words: int) -> Any:
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


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


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
    runnable = [a.name for a in read_manifest(options.bundle).artifacts if cannot_run(a) is None]
    agreement_words = min(options.agreement_words or len(words), len(words))
    names = options.artifact or runnable
    results = list(measure(checkpoint, words, agreement_words, options.bundle, names, options.threads))
    print_results(results)
    if options.output:
        report = {
            "data": {"name": options.data.name, "sha256": sha256(options.data), "words": len(words)},
            "model_sha256": sha256(options.checkpoint / WEIGHTS),
            "generation": [dataclasses.asdict(checkpoint.config(beams)) for beams in (1, NUM_BEAMS)],
            "threads": options.threads,
            "machine": dataclasses.asdict(this_machine()),
            "versions": installed_versions(),
            "results": [describe(result) for result in results],
        }
        write_json(options.output, report)
    return not any(result.failed for result in results)


def main() -> None:
    options = parse()
    try:
        if not run(options):
            sys.exit("error: an artifact of full precision does not say what PyTorch says")
    except (EdgeformerError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
