"""What benchmarks/peer_speed.py makes of the engines' rounds: figures, ratios, agreement, and their tables."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from comparison import Spread, ratio
from peer_rounds import Ran, Record
from peer_works import Planned


@dataclasses.dataclass(frozen=True, slots=True)
class Contender:
    """An engine, as tables have it.

    Attributes:
        name: the library and its format.
        ours: whether it is one of ours.
        bits: of a weight.
        disk_bytes: of its model.
    """

    name: str
    ours: bool
    bits: int
    disk_bytes: int


def seconds_of(record: Record, work: Planned) -> list[float]:
    """Of each round, without the first new token's where the work asks for it; never less than a microsecond."""
    if not work.after_first:
        return [reply["seconds"] for reply in record.rounds]
    return [max(reply["seconds"] - reply["first_seconds"], 1e-6) for reply in record.rounds]


def share_of_tokens(found: Sequence[Sequence[int]], right: Sequence[Sequence[int]]) -> float:
    """Percent of tokens up to where each row first differs: what comes behind is an answer to another text."""
    same = 0
    for row, other in zip(found, right, strict=True):
        differ = [i for i, (a, b) in enumerate(zip(row, other, strict=True)) if a != b]
        same += differ[0] if differ else len(other)
    return 100 * same / sum(map(len, right))


def share_of_firsts(found: Sequence[Sequence[int]], right: Sequence[Sequence[int]]) -> float:
    """Percent of rows whose first new token is right."""
    return 100 * statistics.mean(row[0] == other[0] for row, other in zip(found, right, strict=True))


def least_cosine(found: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> float:
    """The smallest cosine between vectors of the same row."""
    a, b = np.array(found), np.array(right)
    return float(((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).min())


def agreement(found: Sequence[Sequence[Any]], right: Sequence[Sequence[Any]], kind: str) -> dict[str, float]:
    """How far outputs are the reference's."""
    if kind == "encoder":
        return {"least_cosine": least_cosine(found, right)}
    return {"same_tokens": share_of_tokens(found, right), "same_first_tokens": share_of_firsts(found, right)}


def reference_of(work: str, ran: Mapping[str, Ran], names: Sequence[str]) -> tuple[str, Record] | None:
    """The first of the names that has done the work."""
    for name in names:
        if name in ran and ran[name].records[work].cannot is None:
            return name, ran[name].records[work]
    return None


def summarize(
    work: Planned, contenders: Sequence[Contender], ran: Mapping[str, Ran], references: Sequence[str], kind: str
) -> dict[str, Any]:
    """One work's measurements: of each engine, and the fastest of ours and of the others for each number of bits."""
    reference = reference_of(work.name, ran, references)
    taking_part = [c for c in contenders if c.name in ran]
    done = {c.name: seconds_of(ran[c.name].records[work.name], work) for c in taking_part
            if ran[c.name].records[work.name].cannot is None}  # fmt: skip
    engines: dict[str, Any] = {}
    for contender in taking_part:
        record = ran[contender.name].records[work.name]
        if record.cannot is not None:
            engines[contender.name] = {"cannot": record.cannot}
            continue
        mine = fastest_of(contenders, done, ours=True, bits=contender.bits)
        engines[contender.name] = {
            "seconds": dataclasses.asdict(Spread.of(done[contender.name])),
            "per_second": work.units / statistics.median(done[contender.name]),
            "ours": mine,
            "ratio": dataclasses.asdict(ratio(done[mine], done[contender.name])) if mine else None,
            "agreement": agreement(record.outputs, reference[1].outputs, kind) if reference else None,
            "peak_rss_mib": record.rounds[-1]["peak_rss_mib"],
            "rounds": record.rounds,
        }
    return {
        "work": work.name, "unit": work.unit, "units": work.units, "after_first": work.after_first,
        "reference": reference[0] if reference else None, "engines": engines, "best": list(best(contenders, done)),
    }  # fmt: skip


def fastest_of(
    contenders: Sequence[Contender], done: Mapping[str, Sequence[float]], *, ours: bool, bits: int
) -> str | None:
    """The engine with the smallest median, of ours or of the others, with so many bits."""
    names = [c.name for c in contenders if c.ours == ours and c.bits == bits and c.name in done]
    return min(names, key=lambda name: statistics.median(done[name]), default=None)


def best(contenders: Sequence[Contender], done: Mapping[str, Sequence[float]]) -> Iterator[dict[str, Any]]:
    for bits in sorted({contender.bits for contender in contenders}, reverse=True):
        ours, peer = (fastest_of(contenders, done, ours=side, bits=bits) for side in (True, False))
        if ours and peer:
            times = dataclasses.asdict(ratio(done[ours], done[peer]))
            yield {"bits": bits, "ours": ours, "peer": peer, "ratio": times}


Table = tuple[list[str], list[list[str]]]  # columns, and rows of cells


def work_table(entry: Mapping[str, Any], bits: Mapping[str, int]) -> Table:
    """One work: a row for each engine that did it."""
    agreed = ["least cosine"] if entry["unit"] == "sentences" else ["same tokens %", "same first %"]
    columns = ["engine", "bits", "ms: median (least-most)", f"{entry['unit']}/s", "ours is x times as fast", *agreed,
               "peak MiB"]  # fmt: skip
    table = []
    for name, engine in entry["engines"].items():
        if "cannot" in engine:
            continue
        milliseconds = Spread(*(1000 * value for value in engine["seconds"].values()))
        times = Spread(**engine["ratio"]).text(2) if engine["ratio"] and name != engine["ours"] else "-"
        shares = engine["agreement"] or dict.fromkeys(agreed)
        digits = 4 if entry["unit"] == "sentences" else 1
        table.append(
            [
                name, str(bits[name]), milliseconds.text(1), f"{engine['per_second']:.1f}", times,
                *("-" if share is None else f"{share:.{digits}f}" for share in shares.values()),
                f"{engine['peak_rss_mib']:.0f}",
            ]
        )  # fmt: skip
    return columns, table


def best_table(report: Mapping[str, Any]) -> Table:
    rows = [
        [entry["work"], str(pair["bits"]), pair["ours"], pair["peer"], Spread(**pair["ratio"]).text(2)]
        for entry in report["works"]
        for pair in entry["best"]
    ]
    return ["work", "bits", "ours", "fastest peer", "ours is x times as fast"], rows


def engine_table(report: Mapping[str, Any]) -> Table:
    """What engines take before any work."""
    rows = [
        [name, str(e["bits"]), f"{e['disk_bytes'] / 1e6:.1f}", f"{e['load_seconds']:.2f}", f"{e['start_seconds']:.2f}",
         f"{e['loaded_rss_mib']:.0f}", ", ".join(f"{package} {v}" for package, v in e["versions"].items())]
        for name, e in report["engines"].items()
    ]  # fmt: skip
    return ["engine", "bits", "MB on disk", "load to first token s", "with imports s", "MiB then", "versions"], rows


def cannot_table(report: Mapping[str, Any]) -> Table:
    """What was asked for and not done, with the reason."""
    rows = [[name, "all", reason] for name, reason in report["missing"].items()]
    for entry in report["works"]:
        rows += [[name, entry["work"], e["cannot"]] for name, e in entry["engines"].items() if "cannot" in e]
    return ["engine", "work", "why not"], rows


def tables(report: Mapping[str, Any]) -> Iterator[tuple[str, Table]]:
    """Every table under its title."""
    bits = {name: engine["bits"] for name, engine in report["engines"].items()}
    yield "the fastest of ours and of the peers", best_table(report)
    for entry in report["works"]:
        yield f"{entry['work']} (agreement with {entry['reference']})", work_table(entry, bits)
    yield "before any work", engine_table(report)
    if (cannot := cannot_table(report))[1]:
        yield "not done", cannot


def headline(report: Mapping[str, Any]) -> str:
    machine = report["machine"]
    return (
        f"{report['kind']} {report['shape_name']}, random weights; {machine['cpu']}, {machine['cores']} cores, "
        f"{report['threads']} threads, load average {report['load_average']:.2f}; medians of {report['rounds']} rounds"
    )


def markdown(report: Mapping[str, Any]) -> str:
    """The tables as a Markdown page."""
    parts = [headline(report)]
    for title, (columns, rows) in tables(report):
        lines = [columns, ["---"] * len(columns), *rows]
        parts.append(f"### {title[0].upper()}{title[1:]}")
        parts.append("\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines))
    return "\n\n".join(parts) + "\n"
