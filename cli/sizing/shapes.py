"""What a model is made of, whoever counted it: the matrices of each graph, and what else is stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edgeformer.runtime.encoder_records import EncoderRecord
from edgeformer.runtime.names import Sizes

if TYPE_CHECKING:
    from edgeformer.runtime.bundle import Kind


@dataclasses.dataclass(frozen=True, slots=True)
class Weight:
    """A matrix.

    Attributes:
        key: the same for what is one tensor, in whatever graph it is used.
        k, n: inputs and outputs of its product; of a table the width and the rows.
        multiplied: whether it is multiplied with all tokens.
        looked_up: whether rows of it are read by number.
    """

    key: object
    k: int
    n: int
    multiplied: bool
    looked_up: bool

    @property
    def count(self) -> int:
        return self.k * self.n


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """A graph.

    Attributes:
        weights: its matrices.
        others: numbers in biases, gains, and whatever is no matrix.
        attentions: how many it has; of a step over its own tokens, and over a source.
    """

    weights: tuple[Weight, ...]
    others: int
    attentions: int

    @property
    def products(self) -> Iterator[Weight]:
        return (weight for weight in self.weights if weight.multiplied)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A model.

    Attributes:
        model_type: its family.
        encoder: what the outputs of an encoder are that does not write; None of others.
        roles: `encoder`, `decoder`, or both.
        windows: positions that a query of each decoder layer sees; all where it is None.
        parameters: numbers that its checkpoint holds; what is used in several places counts once.
    """

    model_type: str
    kind: Kind
    sizes: Sizes
    encoder: EncoderRecord | None
    roles: Mapping[str, Role]
    windows: tuple[int | None, ...]
    parameters: int

    def is_head(self, weight: Weight) -> bool:
        """Whether its outputs are the vocabulary."""
        return weight.n == self.sizes.vocab_size
