"""What the runtime gives back."""

from __future__ import annotations

import dataclasses
from typing import Literal

FinishReason = Literal["stop", "length"]


@dataclasses.dataclass(frozen=True, slots=True)
class Hypothesis:
    """One generated sequence.

    Attributes:
        token_ids: without the end token.
        score: sum of log-probabilities (natural logarithm), the end token's included where it ended by one, divided by
            the number of tokens to the power of the length penalty. Greedy search and sampling report the plain sum of
            what the model gave each token, whatever options made of it; a beam search's are what options left.
        finish_reason: `stop` at the end token, `length` at max_new_tokens.
        text: token_ids decoded.
    """

    token_ids: tuple[int, ...]
    score: float
    finish_reason: FinishReason
    text: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of the call that gave a result, for the whole batch that the result was part of.

    Attributes:
        ends: until each step had its tokens, the first one's at `first_token`.
    """

    encode: float
    first_token: float
    total: float
    steps: int
    ends: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Generation:
    """The n-best of one input, best first; or the texts that were drawn for it, as they came.

    `text`, `token_ids`, `score` and `finish_reason` are those of the first.
    """

    hypotheses: tuple[Hypothesis, ...]
    timings: Timings

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.hypotheses[0].token_ids

    @property
    def score(self) -> float:
        return self.hypotheses[0].score

    @property
    def finish_reason(self) -> FinishReason:
        return self.hypotheses[0].finish_reason


@dataclasses.dataclass(frozen=True, slots=True)
class Score:
    """How likely a given target is: log-probability of each token, the end token last, and their sum."""

    token_log_probs: tuple[float, ...]

    @property
    def log_prob(self) -> float:
        return sum(self.token_log_probs)
