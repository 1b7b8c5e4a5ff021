"""CTranslate2 on the checkpoint and the words of benchmarks/g2p_speed.py, in a virtual environment of its own.

    python -m venv build/ctranslate2 && build/ctranslate2/bin/pip install ctranslate2 tokenizers safetensors numpy
    build/ctranslate2/bin/python benchmarks/peers/ctranslate2_g2p.py convert CHECKPOINT MODEL --quantization int8
    build/ctranslate2/bin/python benchmarks/peers/ctranslate2_g2p.py translate MODEL --words FILE --batch 64 --beams 4

`worker` lets another program decide when a round runs, so that two engines can take turns on one machine. It answers
each line of JSON on standard input with one on standard output, the first of them unasked:

    < {"words": 2000, "load_seconds": 0.04, "compute_type": "float32", "versions": {...}, ...}
    > {"batch": 64, "beams": 4, "round": 0, "outputs": true}
    < {"batch": 64, "beams": 4, "round": 0, "seconds": 2.9, "peak_rss_mib": 120.5, ..., "outputs": ["AH B EY T", ...]}

A setting is warmed up, untimed, the first time it is asked for. A line that can't be answered gets {"error": "..."};
end of input ends the program. With CT2_VERBOSE=1 in the environment, CTranslate2 names its CPU kernels on stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import ctranslate2
from answering import peak_rss_mib
from tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """One pass over all words.

    Attributes:
        seconds: from words to phoneme strings, what a caller waits for.
        translate_seconds: the part of it inside CTranslate2; the rest is the tokenizer.
        cpu_seconds: processor time of all threads, which a busy machine disturbs less.
        call_ms_p50, call_ms_p90: of single calls, in milliseconds.
        outputs: phonemes in the order of the words.
    """

    seconds: float
    translate_seconds: float
    cpu_seconds: float
    call_ms_p50: float
    call_ms_p90: float
    outputs: list[str]

    def report(self) -> dict[str, Any]:
        """Everything but the outputs, with rates and the process's peak memory so far."""
        words = len(self.outputs)
        times = {name: value for name, value in dataclasses.asdict(self).items() if name != "outputs"}
        rates = {"words_per_second": words / self.seconds, "ms_per_word": 1000 * self.seconds / words}
        return {**times, **rates, "peak_rss_mib": peak_rss_mib()}


class Peer:
    """A loaded model and the words to say."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.words = read_words(options.words)
        self.search = {
            "patience": options.patience,
            "length_penalty": options.length_penalty,
            "max_decoding_length": options.max_new_tokens,
            "min_decoding_length": 0,  # By default CTranslate2 forbids an end token at once; ours may say nothing.
        }
        self.warm: set[tuple[int, int]] = set()
        begin = time.perf_counter()
        self.tokenizer = Tokenizer.from_str((options.model / "tokenizer.json").read_text(encoding="utf-8"))
        self.translator = ctranslate2.Translator(
            str(options.model),
            compute_type=options.compute_type,
            inter_threads=1,
            intra_threads=options.threads,
        )
        self.load_seconds = time.perf_counter() - begin
        self.check_words()

    def check_words(self) -> None:
        """Refuse what no round could answer, before one is timed."""
        if not self.words:
            sys.exit("error: there are no words to say")
        for word in self.words:
            try:
                self.tokenizer.encode(word)
            except Exception as error:  # tokenizers raises no narrower class
                sys.exit(f"error: {word!r} cannot be spelled: {error}")

    def describe(self) -> dict[str, Any]:
        return {
            "words": len(self.words),
            "load_seconds": self.load_seconds,
            "peak_rss_mib": peak_rss_mib(),
            "compute_type": self.translator.compute_type,
            "search": self.search,
            "versions": {name: importlib.metadata.version(name) for name in ("ctranslate2", "tokenizers", "numpy")},
            "python": platform.python_version(),
            "machine": platform.platform(),
        }

    def translate(self, sources: list[list[str]], beams: int) -> list[str]:
        """Phonemes of tokenized words, as one batch whatever their number."""
        results = self.translator.translate_batch(sources, beam_size=beams, **self.search)
        return [" ".join(result.hypotheses[0]) for result in results]

    def round(self, batch: int, beams: int) -> Round:
        """Say every word, `batch` of them per call in the order given. Warmed up first where this setting is new."""
        if (batch, beams) not in self.warm:
            self.run(self.words[: max(2 * batch, 50)], batch, beams)
            self.warm.add((batch, beams))
        return self.run(self.words, batch, beams)

    def run(self, words: list[str], batch: int, beams: int) -> Round:
        outputs: list[str] = []
        calls: list[float] = []
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for start in range(0, len(words), batch):
            sources = [self.tokenizer.encode(word).tokens for word in words[start : start + batch]]
            before = time.perf_counter()
            outputs += self.translate(sources, beams)
            calls.append(time.perf_counter() - before)
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
        tenths = statistics.quantiles(calls, n=10, method="inclusive") if len(calls) > 1 else calls * 9
        p50, p90 = (1000 * value for value in (statistics.median(calls), tenths[-1]))
        return Round(seconds, sum(calls), cpu_seconds, p50, p90, outputs)


def read_words(path: Path) -> list[str]:
    """One word a line, each once; what follows a tab (a pronunciation) is left out."""
    words = (line.split("\t")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(word for word in words if word))


def answer(peer: Peer, line: str) -> dict[str, Any]:
    """The reply to one command of `worker`."""
    try:
        command = json.loads(line)
    except json.JSONDecodeError as error:
        return {"error": f"not JSON: {error}"}
    batch, beams = (command.get(key) if isinstance(command, dict) else None for key in ("batch", "beams"))
    if not isinstance(batch, int) or not isinstance(beams, int) or min(batch, beams) < 1:
        return {"error": f"expected an object with batch and beams of at least 1, not {line.strip()}"}
    try:
        done = peer.round(batch, beams)
    except (ValueError, RuntimeError) as error:  # what CTranslate2 raises, such as a word past the last position
        return {"error": str(error)}
    reply = {"batch": batch, "beams": beams, "round": command.get("round"), **done.report()}
    return {**reply, "outputs": done.outputs} if command.get("outputs") else reply


def work(options: argparse.Namespace) -> None:
    peer = Peer(options)
    print(json.dumps(peer.describe()), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(peer, line)), flush=True)


def translate(options: argparse.Namespace) -> None:
    peer = Peer(options)
    rounds = [peer.round(options.batch, options.beams) for _ in range(options.repeat)]
    reports = [done.report() for done in rounds]
    described = peer.describe()
    setting = {"batch": options.batch, "beams": options.beams, "threads": options.threads}
    print(f"CTranslate2 {described['versions']['ctranslate2']} {described['compute_type']}: {len(peer.words)} words")
    print(", ".join(f"{name} {value}" for name, value in setting.items()))
    print(" round   seconds     cpu s   words/s   ms/word  call p50  call p90  (ms)")
    columns = ("seconds", "cpu_seconds", "words_per_second", "ms_per_word", "call_ms_p50", "call_ms_p90")
    for i, report in enumerate(reports):
        print(f"{i:6}" + "".join(f"{report[column]:10.3f}" for column in columns))
    print(f"loaded in {described['load_seconds']:.3f} s, peak memory {described['peak_rss_mib']:.1f} MiB")
    if options.json:
        outputs = dict(zip(peer.words, rounds[-1].outputs, strict=True))
        result = {**described, **setting, "rounds": reports, "outputs": outputs}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def convert(options: argparse.Namespace) -> None:
    from ctranslate2_convert import ConversionError
    from ctranslate2_convert import convert as convert_checkpoint

    try:
        convert_checkpoint(options.checkpoint, options.output, options.quantization)
    except ConversionError as error:
        sys.exit(f"error: {error}")


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    converting = commands.add_parser("convert", help="write the CTranslate2 model of a checkpoint")
    converting.add_argument("checkpoint", type=Path)
    converting.add_argument("output", type=Path, help="a folder that is missing or empty")
    converting.add_argument("--quantization", choices=("float32", "int8"), default="float32")
    converting.set_defaults(function=convert)
    for name, function, text in (("translate", translate, "time rounds"), ("worker", work, "run rounds on demand")):
        running = commands.add_parser(name, help=text)
        running.set_defaults(function=function)
        running.add_argument("model", type=Path, help="what `convert` wrote")
        running.add_argument("--words", type=Path, required=True, help="one word a line; what follows a tab is ignored")
        running.add_argument("--threads", type=positive, default=1, help="OpenMP threads of the one translator")
        running.add_argument("--compute-type", default="default", help="CTranslate2's; default: as the model is stored")
        running.add_argument("--max-new-tokens", type=positive, default=64, help="at most the model's positions")
        running.add_argument("--length-penalty", type=float, default=1.0, help="beams only")
        running.add_argument("--patience", type=float, default=1.0, help="beams only: stop at beams x patience results")
        if name == "translate":
            running.add_argument("--batch", type=positive, default=1, help="words per call")
            running.add_argument("--beams", type=positive, default=1, help="1 is greedy")
            running.add_argument("--repeat", type=positive, default=3, help="timed rounds")
            running.add_argument("--json", type=Path, help="write everything here, outputs included")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    try:
        options.function(options)
    except (OSError, RuntimeError) as error:  # a file that is missing, a model that CTranslate2 refuses
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
