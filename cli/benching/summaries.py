"""What the calls of a cell say: latencies with intervals, throughput, and the raw samples beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from edgeformer.cli.benching.calls import Call
from edgeformer.cli.benching.grid import Cell
from edgeformer.cli.benching.intervals import PERCENTS, Interval, far_out, percentiles, rate

MILLISECONDS = 1e3


def summarize(cell: Cell, calls: Sequence[Call], began: float) -> dict[str, Any]:
    """A cell of a record, without what is measured apart from its calls.

    Args:
        cell: what the calls are of.
        calls: at least one.
        began: the clock at the beginning of the run.
    """
    seconds = [call.seconds for call in calls]
    return {
        **cell.key,
        "max_new_tokens": cell.config.max_new_tokens,
        "calls": len(calls),
        "ttft_ms": latency([[call.first] for call in calls]),
        "itl_ms": latency([call.steps for call in calls]),
        "e2e_ms": latency([[call.seconds] for call in calls]),
        "inputs_per_second": dataclasses.asdict(rate([cell.batch] * len(calls), seconds)),
        "tokens_per_second": dataclasses.asdict(rate([call.tokens for call in calls], seconds)),
        "tokens_per_second_per_user": dataclasses.asdict(rate([call.tokens / cell.batch for call in calls], seconds)),
        "far_out": far_out(seconds),
        "samples": {
            "began": [call.began - began for call in calls],
            "ttft": [call.first for call in calls],
            "itl": [list(call.steps) for call in calls],
            "e2e": seconds,
            "tokens": [call.tokens for call in calls],
        },
    }


def latency(calls: Sequence[Sequence[float]]) -> dict[str, dict[str, float | None]] | None:
    """Percentiles in milliseconds by their names, None where there are no samples: calls of a single token."""
    some = [call for call in calls if len(call)]
    if not some:
        return None
    return {f"p{percent}": shown(one) for percent, one in zip(PERCENTS, percentiles(some), strict=True)}


def shown(interval: Interval) -> dict[str, float | None]:
    return dataclasses.asdict(interval.scaled(MILLISECONDS))
