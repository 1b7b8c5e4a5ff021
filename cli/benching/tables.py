"""Records and comparisons on a terminal."""

from __future__ import annotations

from typing import Any

from edgeformer.cli.benching import wording
from edgeformer.cli.benching.comparing import LEVEL, Comparison
from edgeformer.cli.benching.intervals import Interval
from edgeformer.cli.benching.telemetry.counters import NOT_MEASURED, NOT_SUPPORTED
from edgeformer.cli.printing import print_line, print_table


def print_record(record: dict[str, Any]) -> None:
    print_line(wording.machine(record))
    print_line(wording.LEGEND)
    rows = list(wording.cell_rows(record))
    # A column where every row says the same nothing is left out.
    nothing = {wording.NONE, NOT_SUPPORTED, NOT_MEASURED}
    kept = [i for i in range(len(wording.COLUMNS)) if {row[i] for row in rows} - nothing]
    columns = [wording.COLUMNS[i] for i in kept]
    print_table(columns, [[row[i] for i in kept] for row in rows], numbers=columns[1:])
    for artifact in record["artifacts"]:
        print_line(wording.apart(artifact))
    print_line(wording.ceilings(record))
    energies = [cell["energy"] for artifact in record["artifacts"] for cell in artifact["cells"]]
    for reason in sorted({energy for energy in energies if isinstance(energy, str)}):
        print_line(f"energy: {reason}")
    print_line(wording.quiet(record))


def print_comparison(comparison: Comparison) -> None:
    print_line(f"{comparison.other} against {comparison.base}: medians in ms, changes with their 95 % intervals")
    rows = [
        (one.cell, one.metric, f"{one.base_ms:.3f}", f"{one.other_ms:.3f}", change(one.ratio), f"{one.chance:.2g}",
         one.verdict)
        for one in comparison.differences
    ]  # fmt: skip
    columns = ["cell", "latency", "before", "after", "change", "chance", "verdict"]
    print_table(columns, rows, numbers=columns[2:6])
    print_line(f"chance: that one distribution gives such ranks (Mann-Whitney, Holm); a verdict needs below {LEVEL}")
    for remark in comparison.remarks:
        print_line(f"mind: {remark}")


def change(ratio: Interval) -> str:
    low, high = ratio.low, ratio.high
    span = "" if low is None or high is None else f" [{low - 1:+.1%}, {high - 1:+.1%}]"
    return f"{ratio.value - 1:+.1%}{span}"
