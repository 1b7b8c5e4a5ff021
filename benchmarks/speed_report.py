"""What benchmarks/g2p_speed.py finds: one entry a setting, of engines, pairs, and the best of both sides."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comparison import Spread, accurate_enough, fastest, ratio, share_equal
from pronunciations import Phonemes, error_rates
from taking_turns import Record, Setting

from edgeformer.runtime.errors import InputError

PEER = "CTranslate2 "  # how the names of the peer's engines begin
BASELINE = "ort-cpu-fp32"  # whose accuracy the 8-bit forms must keep
BEAMS = (1, 4)

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


def summarize(
    setting: Setting, words: list[str], records: list[Record], pairs: Pairs, spoken: Spoken
) -> dict[str, Any]:
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
            "cpu_ratio": dataclasses.asdict(ratio(by_name[ours].cpu_seconds, by_name[peer].cpu_seconds)),
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
