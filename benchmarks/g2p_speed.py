"""How fast the letters-to-phonemes bundle decodes, beside CTranslate2 on the same weights, words and threads.

    python benchmarks/g2p_speed.py --data g014b2b.test -o speed.json

Both sides are worker processes that take turns: ours, the peer's, ours, ..., and in the opposite order every other
round. Both go from words to phoneme strings, tokenizer included. A call takes 1 or 64 words; a search is greedy or
keeps 4 beams. Calls of one word say a quarter of the words. `ratio` is how many times as fast ours is, by the medians,
with the extremes of single rounds in brackets.

Beam searches of both sides end at num_beams finished hypotheses, which is CTranslate2's rule and the runtime's
early_stopping=True, and divide log-probabilities by the number of tokens. What is said is compared with PyTorch's own
search on that quarter, and judged by the references on all words.

CTranslate2 gets a virtual environment of its own, made here where it is missing. Needs the extra `all`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import speed_tables
from comparison import Spread, accurate_enough, fastest, interleave, ratio, share_equal
from peer_environment import PROGRAM, convert, peer_python
from pronunciations import Phonemes, error_rates, read_pronunciations, spread
from rich.console import Console
from taking_turns import Engine, Record, Setting, take_turns
from torch_search import Checkpoint

from edgeformer.cli.machine import this_machine, usable_cores
from edgeformer.cli.printing import write_json
from edgeformer.cli.progress import counting
from edgeformer.cli.requirements import installed_versions
from edgeformer.models.checkpoint import WEIGHTS
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.bundle import read_manifest, sha256
from edgeformer.runtime.errors import EdgeformerError, InputError, TargetError

# Which of ours is compared with which of the peer's.
PAIRS = (("ort-cpu-fp32", "float32"), ("ort-cpu-int8", "int8"), ("ort-cpu-int8-rows", "int8"))
PEER = "CTranslate2 "
BASELINE = "ort-cpu-fp32"
BATCHES, BEAMS = (1, 64), (1, 4)
SINGLE_SHARE = 4  # calls of one word say every fourth word
NOISY_LOAD = 0.5  # load average per core
WORKER = Path(__file__).with_name("g2p_worker.py")

console = Console(stderr=True, highlight=False)
Pairs = Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Spoken:
    """The words, their references, and what PyTorch says of every fourth by the number of beams."""

    references: Mapping[str, Sequence[Phonemes]]
    in_pytorch: Mapping[int, Mapping[str, str]]

    @property
    def words(self) -> list[str]:
        return list(self.references)

    def wer(self, outputs: Mapping[str, str]) -> float:
        return error_rates(list(outputs.values()), [self.references[word] for word in outputs]).wer

    def equal_to_pytorch(self, beams: int, outputs: Mapping[str, str]) -> float:
        expected = self.in_pytorch[beams]
        return share_equal(list(expected.values()), [outputs[word] for word in expected])


def available_pairs(bundle: Path) -> Pairs:
    """The pairs whose artifact the bundle has, the peer's part with its full name.

    Raises:
        BundleError: the bundle cannot be read.
        TargetError: it has none of them.
    """
    names = [artifact.name for artifact in read_manifest(bundle).artifacts]
    pairs = [(ours, PEER + peer) for ours, peer in PAIRS if ours in names]
    if missing := [ours for ours, _ in PAIRS if ours not in names]:
        console.print(f"not in the bundle, and left out: {', '.join(missing)}")
    if not pairs:
        raise TargetError(f"bundle {bundle} has none of {', '.join(ours for ours, _ in PAIRS)}: run edgeformer optimize")
    return pairs


def make_engines(pairs: Pairs, options: argparse.Namespace, most: int, scratch: Path) -> list[Engine]:
    """Workers in the order in which they take turns; the peer's models are converted into `scratch`."""
    console.print(f"looking after {PEER.strip()} in {options.setup_peer}")
    python = peer_python(options.setup_peer)
    search = ("--max-new-tokens", str(most), "--length-penalty", "1.0")
    engines = []
    for name in interleave(pairs):
        if name.startswith(PEER):
            quantization = name.removeprefix(PEER)
            convert(python, options.checkpoint, scratch / quantization, quantization)
            command = (str(python), str(PROGRAM), "worker", str(scratch / quantization), *search, "--patience", "1.0")
        else:
            ours = (sys.executable, str(WORKER), str(options.bundle), "--artifact", name)
            command = (*ours, *search, "--early-stopping", "true")
        engines.append(Engine(name, command))
    return engines


def speak(checkpoint: Checkpoint, references: Mapping[str, Sequence[Phonemes]], most: int) -> Spoken:
    """Let PyTorch say every fourth word."""
    words, in_pytorch = list(references)[::SINGLE_SHARE], dict[int, Mapping[str, str]]()
    for beams in BEAMS:
        config = GenerationConfig(max_new_tokens=most, num_beams=beams, early_stopping=True)
        console.print(f"PyTorch says {len(words)} words, {speed_tables.search_name(beams)}")
        with counting("words", len(words)) as on_done:
            ids = checkpoint.say(words, config, on_done)
        in_pytorch[beams] = {word: checkpoint.spell(row) for word, row in zip(words, ids, strict=True)}
    return Spoken(references, in_pytorch)


def settings(options: argparse.Namespace, words: Sequence[str], scratch: Path) -> Iterator[tuple[Setting, list[str]]]:
    """Every setting with its words."""
    for threads in options.threads:
        for batch in BATCHES:
            said = list(words[::SINGLE_SHARE] if batch == 1 else words)
            file = scratch / f"words-{batch}"
            file.write_text("\n".join(said) + "\n", encoding="utf-8")
            for beams in BEAMS:
                yield Setting(threads, batch, beams, file), said


def summarize(setting: Setting, words: list[str], records: list[Record], pairs: Pairs, spoken: Spoken) -> dict[str, Any]:
    """One setting's measurements: of each engine, and of each pair."""
    engines, by_name = {}, {record.engine: record for record in records}
    for record in records:
        outputs = dict(zip(words, record.outputs, strict=True))
        engines[record.engine] = {
            "words_per_second": dataclasses.asdict(Spread.of([len(words) / seconds for seconds in record.seconds])),
            "ms_per_word": dataclasses.asdict(Spread.of([1000 * seconds / len(words) for seconds in record.seconds])),
            "peak_rss_mib": record.rounds[-1]["peak_rss_mib"],
            "load_seconds": record.description["load_seconds"],
            "start_seconds": record.start_seconds,
            "wer": spoken.wer(outputs),
            "equal_to_pytorch": spoken.equal_to_pytorch(setting.beams, outputs),
            "waiting_cpu": sum(r["others_cpu_seconds"] for r in record.rounds) / sum(record.seconds),
            "description": record.description,
            "rounds": record.rounds,
        }
    compared = [
        {
            "ours": ours,
            "peer": peer,
            "ratio": dataclasses.asdict(ratio(by_name[ours].seconds, by_name[peer].seconds)),
            "equal_outputs": share_equal(by_name[ours].outputs, by_name[peer].outputs),
        }
        for ours, peer in pairs
    ]
    setup = {"threads": setting.threads, "batch": setting.batch, "beams": setting.beams, "words": len(words)}
    return {**setup, "engines": engines, "pairs": compared}


def add_best(measured: Sequence[dict[str, Any]], accuracy: Mapping[int, Mapping[str, float]]) -> None:
    """The fastest of ours that is accurate enough, against the fastest of the peer's whatever its accuracy."""
    for entry in measured:
        seconds = {name: [r["seconds"] for r in engine["rounds"]] for name, engine in entry["engines"].items()}
        ours = fastest(seconds, accurate_enough(accuracy[entry["beams"]], BASELINE))
        peer = fastest(seconds, [name for name in seconds if name.startswith(PEER)])
        times = dataclasses.asdict(ratio(seconds[ours], seconds[peer]))
        entry["best"] = {"ours": ours, "peer": peer, "ratio": times}


def accuracy_here(measured: Sequence[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """WER of our artifacts by the number of beams, from the setting with the most words."""
    widest: dict[int, dict[str, Any]] = {}
    for entry in sorted(measured, key=lambda e: int(e["words"])):
        widest[entry["beams"]] = entry["engines"]
    return {
        beams: {name: engine["wer"] for name, engine in engines.items() if not name.startswith(PEER)}
        for beams, engines in widest.items()
    }


def accuracy_from(path: Path, names: Sequence[str]) -> dict[int, dict[str, float]]:
    """The same from what g2p_accuracy.py wrote.

    Raises:
        InputError: it is no such file, or lacks one of the artifacts.
    """
    found: dict[int, dict[str, float]] = {beams: {} for beams in BEAMS}
    try:
        for result in json.loads(path.read_text(encoding="utf-8"))["results"]:
            if result["engine"] in names:
                found[result["num_beams"]][result["engine"]] = result["wer"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not what g2p_accuracy.py writes: {error!r}") from error
    if missing := {name for name in names for rates in found.values() if name not in rates}:
        raise InputError(f"{path} has no accuracy of {', '.join(sorted(missing))}")
    return found


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the list of pronunciations")
    parser.add_argument("--bundle", type=Path, default=Path("build/g2p"), help="made from the checkpoint")
    parser.add_argument("--checkpoint", type=Path, default=Path("examples/g2p/checkpoint"))
    parser.add_argument("--words", type=positive, default=2000, help="evenly spaced over the list")
    parser.add_argument("--rounds", type=positive, default=5, help="of each engine in each setting")
    parser.add_argument("--threads", type=positive, action="append", help="may be repeated; 1 and 2 by default")
    parser.add_argument("--setup-peer", type=Path, metavar="DIR", default=Path("build/peers/ctranslate2"),
                        help="the peer's virtual environment, made where it is missing")  # fmt: skip
    parser.add_argument("--accuracy", type=Path, metavar="JSON",
                        help="of g2p_accuracy.py, to tell which artifacts are accurate enough; by default this run's")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="JSON", help="write everything here as well")
    options = parser.parse_args(arguments)
    options.threads = options.threads or [1, 2]
    return options


def run(options: argparse.Namespace) -> None:
    load_average, cores = os.getloadavg()[0], usable_cores()
    pairs = available_pairs(options.bundle)
    names = [ours for ours, _ in pairs]
    accuracy = accuracy_from(options.accuracy, names) if options.accuracy else None
    references = read_pronunciations(options.data)
    references = {word: references[word] for word in spread(list(references), options.words)}
    checkpoint = Checkpoint(options.checkpoint)
    most = checkpoint.model.config.max_positions
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        engines = make_engines(pairs, options, most, scratch)
        spoken = speak(checkpoint, references, most)
        planned = list(settings(options, spoken.words, scratch))
        measured = []
        with counting("rounds", len(planned) * len(engines) * options.rounds) as on_done:
            for setting, words in planned:
                console.print(speed_tables.setting_name(setting.threads, setting.batch, setting.beams))
                records = take_turns(engines, setting, options.rounds, on_done)
                measured.append(summarize(setting, words, records, pairs, spoken))
    add_best(measured, accuracy or accuracy_here(measured))
    report = {
        "data": {"name": options.data.name, "sha256": sha256(options.data)},
        "model_sha256": sha256(options.checkpoint / WEIGHTS),
        "rounds": options.rounds,
        "load_average": load_average,
        "noisy": load_average > NOISY_LOAD * cores,
        "machine": dataclasses.asdict(this_machine()),
        "versions": installed_versions(),
        "settings": measured,
    }
    speed_tables.print_report(report)
    if options.output:
        write_json(options.output, report)


def main() -> None:
    try:
        run(parse())
    except (EdgeformerError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
