"""What a GPU gave, as values for JSON and as Markdown for an issue."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial.

    Attributes:
        artifact: its name.
        error: why there are no figures, None where there are.
        words: how many were compared with the CPU.
        same_greedy, same_beam: how many of them got the same tokens, greedy and with 4 beams.
        words_per_second: greedy, by batch size.
        token_ms: a further token of a single word, median.
        load_seconds: to check and load it.
        gpu_bytes: memory of the GPU that it took.
        notes: what the backend had to say.
    """

    artifact: str
    error: str | None = None
    words: int = 0
    same_greedy: int = 0
    same_beam: int = 0
    words_per_second: dict[int, float] = dataclasses.field(default_factory=dict)
    token_ms: float | None = None
    load_seconds: float = 0.0
    gpu_bytes: int | None = None
    notes: tuple[str, ...] = ()


def markdown(heading: Sequence[tuple[str, str]], outcomes: Sequence[Outcome]) -> str:
    """A list of what was used, and a table with a line for each artifact."""
    batches = sorted({batch for outcome in outcomes for batch in outcome.words_per_second})
    columns = ["artifact", "greedy as on the CPU", "beam 4 as on the CPU", *(f"words/s, batch {n}" for n in batches),
               "ms a token", "load", "GPU memory"]  # fmt: skip
    lines = [f"- {name}: {value}" for name, value in heading]
    lines += ["", table_row(columns), table_row(["---", *["---:"] * (len(columns) - 1)])]
    lines += [table_row(cells(outcome, batches)) for outcome in outcomes if outcome.error is None]
    lines += [""]
    for outcome in outcomes:
        lines += [f"- {outcome.artifact}: {said}" for said in (outcome.error, *outcome.notes) if said]
    return "\n".join(lines).rstrip() + "\n"


def cells(outcome: Outcome, batches: Sequence[int]) -> list[str]:
    speeds = (outcome.words_per_second.get(n) for n in batches)
    return [
        outcome.artifact,
        f"{outcome.same_greedy} of {outcome.words}",
        f"{outcome.same_beam} of {outcome.words}",
        *("-" if speed is None else f"{speed:.1f}" for speed in speeds),
        "-" if outcome.token_ms is None else f"{outcome.token_ms:.3f}",
        f"{outcome.load_seconds:.2f} s",
        "-" if outcome.gpu_bytes is None else f"{outcome.gpu_bytes / 1e6:.1f} MB",
    ]


def table_row(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def as_values(heading: Sequence[tuple[str, str]], outcomes: Sequence[Outcome], **more: Any) -> dict[str, Any]:
    return {"machine": dict(heading), "outcomes": [dataclasses.asdict(outcome) for outcome in outcomes], **more}
