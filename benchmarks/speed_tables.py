"""What benchmarks/g2p_speed.py prints."""

from __future__ import annotations

from typing import Any

from comparison import WER_MARGIN, Spread

from edgeformer.cli.printing import print_line, print_table

WAITING_CPU = 0.05  # of one core: more than that is told


def search_name(beams: int) -> str:
    return "greedy" if beams == 1 else f"beam {beams}"


def setting_name(threads: int, batch: int, beams: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}, batch {batch}, {search_name(beams)}"


def print_report(report: dict[str, Any]) -> None:
    machine, versions = report["machine"], report["versions"]
    used = ", ".join(f"{package} {versions[package]}" for package in ("edgeformer", "onnxruntime", "numpy"))
    print_line(f"{machine['cpu']}, {machine['cores']} cores, {machine['os']}, Python {machine['python']}, {used}")
    if report["noisy"]:
        print_line(f"noisy: the load average was {report['load_average']:.2f} on {machine['cores']} cores at the start")
    print_line(f"median (least-most) of {report['rounds']} rounds; ratio: how many times as fast ours is")
    print_pairs(report)
    print_line(f"the fastest of ours within {WER_MARGIN} points of WER, and the fastest of the peer")
    print_best(report)
    print_engines(report)


def setting_cells(entry: dict[str, Any]) -> tuple[str, str, str]:
    return str(entry["threads"]), str(entry["batch"]), search_name(entry["beams"])


def print_pairs(report: dict[str, Any]) -> None:
    columns = ["threads", "batch", "search", "ours", "peer", "words/s", "peer's words/s", "ms/word", "peer's ms/word",
               "ratio", "by CPU time", "same output %"]  # fmt: skip
    rows = []
    for entry in report["settings"]:
        for pair in entry["pairs"]:
            both = [entry["engines"][pair[side]] for side in ("ours", "peer")]
            rates = [f"{engine['words_per_second']['median']:.0f}" for engine in both]
            times = [Spread(**engine["ms_per_word"]).text(3) for engine in both]
            shared = (
                Spread(**pair["ratio"]).text(2),
                f"{pair['cpu_ratio']['median']:.2f}",
                f"{pair['equal_outputs']:.1f}",
            )
            rows.append((*setting_cells(entry), pair["ours"], pair["peer"], *rates, *times, *shared))
    print_table(columns, rows, numbers=columns[5:])


def print_best(report: dict[str, Any]) -> None:
    columns = ["threads", "batch", "search", "ours", "peer", "ratio"]
    rows = []
    for entry in report["settings"]:
        best = entry["best"]
        rows.append((*setting_cells(entry), best["ours"], best["peer"], Spread(**best["ratio"]).text(2)))
    print_table(columns, rows, numbers=columns[5:])


def print_engines(report: dict[str, Any]) -> None:
    columns = ["threads", "batch", "search", "engine", "peak MiB", "load s", "start s", "WER %", "equal to PyTorch %"]
    rows, waiting = [], 0.0
    for entry in report["settings"]:
        for name, engine in entry["engines"].items():
            held = engine["peak_rss_mib"]
            rows.append(
                (
                    *setting_cells(entry), name, "-" if held is None else f"{held:.1f}",
                    f"{engine['load_seconds']:.3f}", f"{engine['start_seconds']:.3f}",
                    f"{engine['wer']:.2f}", f"{engine['equal_to_pytorch']:.1f}",
                )
            )  # fmt: skip
            waiting = max(waiting, engine["waiting_cpu"])
    print_table(columns, rows, numbers=columns[4:])
    if waiting > WAITING_CPU:
        print_line(f"noisy: engines that waited took {100 * waiting:.0f} % of a core from one that worked")
