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
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import speed_tables
from arguments import positive
from comparison import interleave
from ending import end_by
from peer_environment import PROGRAM, convert, peer_python
from pronunciations import Phonemes, read_pronunciations, spread
from rich.console import Console
from speed_report import BEAMS, PEER, Pairs, Spoken, accuracy_from, accuracy_here, add_best, summarize
from taking_turns import Engine, Setting, take_turns
from torch_search import Checkpoint

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import write_json
from edgeformer.cli.progress import counting
from edgeformer.cli.requirements import installed_versions
from edgeformer.models.weight_files import WEIGHTS
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.bundle import read_manifest, sha256
from edgeformer.runtime.cores import usable_cores
from edgeformer.runtime.errors import TargetError

# Which of ours is compared with which of the peer's.
PAIRS = (
    ("ort-cpu-fp32", "float32"),
    ("ort-cpu-int8", "int8"),
    ("ort-cpu-int8-rows", "int8"),
    ("ort-cpu-int4", "int8"),  # the fewest bits that CTranslate2 has on a CPU
)
BATCHES = (1, 64)
SINGLE_SHARE = 4  # calls of one word say every fourth word
NOISY_LOAD = 0.5  # load average per core
WORKER = Path(__file__).with_name("g2p_worker.py")

console = Console(stderr=True, highlight=False)


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
        raise TargetError(f"bundle {bundle} has none of {', '.join(ours for ours, _ in PAIRS)}: optimize it first")
    return pairs


def make_engines(pairs: Pairs, options: argparse.Namespace, most: int, scratch: Path) -> list[Engine]:
    """Workers in the order in which they take turns; the peer's models are converted into `scratch`."""
    console.print(f"looking after {PEER.strip()} in {options.setup_peer}")
    python = peer_python(options.setup_peer)
    search = ("--max-new-tokens", str(most), "--length-penalty", "1.0")
    engines, program = [], tuple[str, ...]()
    for name in interleave(pairs):
        if name.startswith(PEER):
            quantization = name.removeprefix(PEER)
            convert(python, options.checkpoint, scratch / quantization, quantization)
            program = (str(python), str(PROGRAM), "worker", str(scratch / quantization), "--patience", "1.0")
        else:
            program = (sys.executable, str(WORKER), str(options.bundle), "--artifact", name, "--early-stopping", "true")
        engines.append(Engine(name, (*program, *search)))
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
                        help="of g2p_accuracy.py, for what is accurate enough; this run's by default")  # fmt: skip
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
    most = checkpoint.options.max_new_tokens or checkpoint.model.config.max_positions
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
        options.output.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.output, report)


def main() -> None:
    end_by(lambda: run(parse()))


if __name__ == "__main__":
    main()
