"""What an encoder's runtime gives back, beside arrays of numbers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class LabelScore:
    """A class and its score: a probability, or the plain logit where the model was made to give a number."""

    label: str
    score: float


@dataclasses.dataclass(frozen=True, slots=True)
class Classification:
    """Every class of an input, best first; `label` and `score` are the best's.

    Where one class is true, the scores sum to 1; where several may be, each is a probability of its own.
    """

    scores: tuple[LabelScore, ...]

    @property
    def label(self) -> str:
        return self.scores[0].label

    @property
    def score(self) -> float:
        return self.scores[0].score


@dataclasses.dataclass(frozen=True, slots=True)
class LabelledToken:
    """A token and its likeliest class.

    Attributes:
        text: its part of the input; the vocabulary's spelling where that was a pair, or ids.
        start, end: where it stands in the input, in characters; None where that was a pair, or ids.
        token_id: its id.
        label: its class.
        score: the probability of that.
    """

    text: str
    start: int | None
    end: int | None
    token_id: int
    label: str
    score: float


@dataclasses.dataclass(frozen=True, slots=True)
class Filling:
    """A token for a mask.

    Attributes:
        token: how it is written.
        token_id: its id.
        score: its probability.
        text: the input with the token in the mask's place; empty where that was a pair, or ids.
    """

    token: str
    token_id: int
    score: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class FilledMask:
    """A mask's n-best tokens, best first; `position` is the mask's among the input's tokens."""

    position: int
    fillings: tuple[Filling, ...]
