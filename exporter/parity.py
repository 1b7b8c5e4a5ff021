"""Whether an artifact gives what PyTorch gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from edgeformer.exporter.golden import NUM_BEAMS
from edgeformer.runtime import GenerationConfig, Model
from edgeformer.runtime.bundle import GoldenSample
from edgeformer.runtime.errors import ParityError


@dataclasses.dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an artifact of some precision may be from PyTorch.

    Attributes:
        same_tokens: whether greedy and beam search must give the same tokens.
        score: largest difference of a log-probability, per token.
    """

    same_tokens: bool
    score: float


EXACT, HALF = Tolerance(same_tokens=True, score=1e-4), Tolerance(same_tokens=False, score=0.02)
ROUNDED, COARSE = Tolerance(same_tokens=False, score=0.2), Tolerance(same_tokens=False, score=0.5)
TOLERANCES = {
    "fp32": EXACT,
    "fp16": HALF,
    "bf16": ROUNDED,
    "int8": ROUNDED,
    "int8-rows": ROUNDED,
    "int4": COARSE,
    "auto": COARSE,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One thing that was compared: how it went, in words, and whether that is good enough."""

    name: str
    passed: bool
    detail: str


OnChecks = Callable[[Sequence[Check]], None]


def check_golden(model: Model, samples: Sequence[GoldenSample]) -> list[Check]:
    """Compare an artifact with what PyTorch gave when the bundle was made, and with itself one row at a time."""
    tolerance = TOLERANCES[model.artifact.precision]
    return [
        *check_tokens(model, samples, tolerance),
        check_scores(model, samples, tolerance),
        *check_rows(model, samples, tolerance),
        check_cache(model, samples, tolerance),
    ]


def check_tokens(model: Model, samples: Sequence[GoldenSample], tolerance: Tolerance) -> list[Check]:
    checks = []
    for name, beams in (("greedy", 1), (f"beam {NUM_BEAMS}", NUM_BEAMS)):
        different = []
        for number, sample in enumerate(samples, start=1):
            config = GenerationConfig(max_new_tokens=sample.max_new_tokens, num_beams=beams)
            found = model.generate([sample.source_ids], config)[0].token_ids
            if found != (sample.greedy if beams == 1 else sample.beam):
                different.append(number)
        detail = f"{len(samples) - len(different)} of {len(samples)} samples token for token"
        if different:
            detail += f", not {', '.join(map(str, different[:5]))}{', ...' if len(different) > 5 else ''}"
            detail += "" if tolerance.same_tokens else "; rounded weights may differ"
        checks.append(Check(f"{name} equals PyTorch", not different or not tolerance.same_tokens, detail))
    return checks


def check_scores(model: Model, samples: Sequence[GoldenSample], tolerance: Tolerance) -> Check:
    found = model.score([s.source_ids for s in samples], [s.greedy for s in samples])
    differences = []
    for sample, score in zip(samples, found, strict=True):
        counted = score.token_log_probs[: sample.max_new_tokens]
        differences.append(abs(sum(counted) - sample.greedy_score) / len(counted))
    worst = largest(differences)
    return Check(
        "log-probabilities equal PyTorch's", worst <= tolerance.score, f"largest difference {worst:.1e} a token"
    )


def check_rows(model: Model, samples: Sequence[GoldenSample], tolerance: Tolerance) -> list[Check]:
    """A ragged batch gives each row what it gets alone.

    Where activations are rounded, a last digit may decide a code, and a code a token that is as likely as another: then
    a row's text must be, to the model alone, as likely as the one that it finds alone, within the tolerance.
    """
    checks = []
    sources = [sample.source_ids for sample in samples]
    for name, beams in (("greedy", 1), (f"beam {NUM_BEAMS}", NUM_BEAMS)):
        config = GenerationConfig(max_new_tokens=max(s.max_new_tokens for s in samples), num_beams=beams)
        together = [result.token_ids for result in model.generate(sources, config)]
        alone = [model.generate([source], config)[0].token_ids for source in sources]
        different = [i for i, ids in enumerate(together) if ids != alone[i]]
        detail = f"{len(sources) - len(different)} of {len(sources)} rows"
        passed = not different
        if different and not tolerance.same_tokens:
            worst = largest(likeness(model, sources[i], together[i], alone[i]) for i in different)
            passed = worst <= tolerance.score * (2 if beams > 1 else 1)  # a search drops a beam for good
            detail += f", the others' log-probabilities within {worst:.1e} a token; rounded activations may differ"
        checks.append(Check(f"a ragged batch equals its rows, {name}", passed, detail))
    return checks


def likeness(model: Model, source: Sequence[int], one: Sequence[int], other: Sequence[int]) -> float:
    """Difference of two texts' log-probabilities a token, each computed alone."""
    means = []
    for ids in (one, other):
        log_probs = model.score([source], [ids])[0].token_log_probs
        means.append(sum(log_probs) / max(len(log_probs), 1))
    return abs(means[0] - means[1])


def check_cache(model: Model, samples: Sequence[GoldenSample], tolerance: Tolerance) -> Check:
    """Tokens one at a time over a cache give the log-probabilities of all at once."""
    differences = []
    for sample in samples:
        most = sample.max_new_tokens  # no end token is taken: it might be another than the one that is scored
        config = GenerationConfig(max_new_tokens=most, min_new_tokens=most)
        generated = model.generate([sample.source_ids], config)[0]
        counted = model.score([sample.source_ids], [generated.token_ids])[0].token_log_probs[:most]
        differences.append(abs(sum(counted) - generated.score) / len(counted))
    worst = largest(differences)
    detail = f"largest difference {worst:.1e} a token"
    return Check("a cache changes nothing", worst <= max(tolerance.score / 10, 1e-4), detail)


def largest(differences: Iterable[float]) -> float:
    """The largest; NaN where one of them is, which no tolerance allows and Python's `max` would pass over."""
    return float(np.max(list(differences), initial=0.0))


def require(checks: Sequence[Check], subject: str) -> None:
    """Raise if a check failed.

    Raises:
        ParityError: naming every check that failed.
    """
    if failed := [f"{check.name}: {check.detail}" for check in checks if not check.passed]:
        raise ParityError(f"{subject} does not give what PyTorch gives: {'; '.join(failed)}")
