"""Rules that a change must not break, such as `p90 > +5%`."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgeformer.cli.benching.comparing import METRICS, Pair
from edgeformer.cli.benching.intervals import RESAMPLES, Draws, percentile_draws, rate_draws, ratio
from edgeformer.runtime.errors import ProblemsError

PERCENTILES = {f"{metric}.p{percent}": (metric, percent) for metric in METRICS for percent in (50, 90, 99)}
SHORT = {f"p{percent}": f"e2e.p{percent}" for percent in (50, 90, 99)}  # of the whole call
RATES = ("tokens_per_second", "tokens_per_second_per_user", "inputs_per_second")
# What is measured once: its place in an artifact, or in a cell.
OF_ARTIFACTS = {
    "load.cold": ("load", "cold", "load_seconds"),
    "load.warm": ("load", "warm", "load_seconds"),
    "memory.host": ("memory", "host_peak_bytes"),
    "memory.device": ("memory", "device_peak_bytes"),
}
OF_CELLS = {"joules_per_token": ("energy", "joules_per_token")}
NAMES = (*SHORT, *PERCENTILES, *RATES, *OF_ARTIFACTS, *OF_CELLS)
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
FORM = re.compile(r"\s*([\w.]+)\s*(>=|<=|>|<)\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


class RuleError(ProblemsError):
    """A record breaks a rule."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A metric, a comparison, and the change in percent that it is compared with."""

    metric: str
    comparison: str
    percent: float

    def holds(self, change: float) -> bool:
        """Whether a relative change, such as 0.07, is what the rule forbids."""
        return COMPARISONS[self.comparison](100 * change, self.percent)

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.percent:+g}%"


def parse(text: str) -> Rule:
    """Read a rule.

    Raises:
        ValueError: it is none; the message says what one looks like.
    """
    found = FORM.fullmatch(text)
    if found is None:
        raise ValueError(f'{text!r} is no rule: expected a metric, > >= < or <=, and a percentage, as in "p90 > +5%"')
    name = SHORT.get(found[1], found[1])
    if name not in NAMES:
        raise ValueError(f"{found[1]!r} is no metric of a rule: expected one of {', '.join(NAMES)}")
    return Rule(name, found[2], float(found[3]))


def broken(rule: Rule, pairs: Sequence[Pair]) -> Iterator[str]:
    """One sentence for each cell or artifact that breaks a rule by more than chance.

    Raises:
        RuleError: a record does not have the rule's metric: a gate that looks at nothing would pass everything.
    """
    seen = set()
    for pair in pairs:
        place = pair.base_artifact["artifact"] if rule.metric in OF_ARTIFACTS else pair.cell
        if place in seen:
            continue
        seen.add(place)
        change, sure = changed(rule, pair)
        if rule.holds(change) and sure:
            yield f"{rule}: {place} changed by {change:+.1%}"


def changed(rule: Rule, pair: Pair) -> tuple[float, bool]:
    """By how much the rule's metric changed, and whether its 95 % interval leaves out no change at all."""
    if rule.metric in OF_ARTIFACTS:
        path = OF_ARTIFACTS[rule.metric]
        one, two = (once(rule, side, path) for side in (pair.base_artifact, pair.other_artifact))
        return two / one - 1, True
    if rule.metric in OF_CELLS:
        path = OF_CELLS[rule.metric]
        one, two = (once(rule, side, path) for side in (pair.base, pair.other))
        return two / one - 1, True
    found = ratio(*(drawn(rule, cell, seed) for seed, cell in enumerate((pair.base, pair.other))))
    sure = found.low is not None and found.high is not None and not found.low <= 1 <= found.high
    return found.value - 1, sure


def drawn(rule: Rule, cell: Mapping[str, Any], seed: int) -> Draws:
    samples = cell["samples"]
    if rule.metric in RATES and cell.get("replay"):  # one throughput of all requests together
        value = float(cell[rule.metric]["value"])
        return Draws(value, np.full(RESAMPLES, value))
    if rule.metric in RATES:
        each = {"inputs_per_second": [cell["batch"]] * cell["calls"]}.get(rule.metric, samples["tokens"])
        share = cell["batch"] if rule.metric == "tokens_per_second_per_user" else 1
        return rate_draws([amount / share for amount in each], samples["e2e"], seed)
    metric, percent = PERCENTILES[rule.metric]
    calls = [steps for steps in samples["itl"] if steps] if metric == "itl" else [[v] for v in samples[metric]]
    if not calls:
        raise RuleError(f"rule {rule}", ["calls of a single token have no itl"])
    return percentile_draws(calls, [percent], seed)[0]


def once(rule: Rule, values: Mapping[str, Any], path: Sequence[str]) -> float:
    found: Any = values
    for name in path:
        found = found[name] if isinstance(found, dict) else found
    if isinstance(found, str) or not found:
        raise RuleError(f"rule {rule}", [f"a record says {found!r} of it: measure it, or leave the rule out"])
    return float(found)
