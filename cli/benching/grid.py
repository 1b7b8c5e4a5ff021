"""What is measured: cells of a grid, the prompts of each, and the order that a seed gives them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.errors import OptionError

Source = str | Sequence[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """Calls that are alike.

    Attributes:
        batch: inputs of a call.
        prompt: tokens of each input; None where the inputs are the user's or the bundle's own.
        config: the search; where the grid says how many new tokens, the least and the most are that many.
    """

    batch: int
    prompt: int | None
    config: GenerationConfig

    @property
    def new_tokens(self) -> int | None:
        """Tokens that every row gets, None where rows end by themselves."""
        config = self.config
        return config.max_new_tokens if config.min_new_tokens == config.max_new_tokens else None

    @property
    def key(self) -> dict[str, int | None]:
        """What tells a cell from the others of its artifact."""
        return {
            "batch": self.batch,
            "num_beams": self.config.num_beams,
            "prompt": self.prompt,
            "new_tokens": self.new_tokens,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What is measured of each artifact.

    Attributes:
        cells: at least one.
        sources: the inputs of cells without a prompt length, and what prompts are cut from.
        rounds: how often each cell is measured.
        warmup: rounds before them that are not.
        seed: of the prompts and the order.
        cores: to use, and how their threads wait.
    """

    cells: Sequence[Cell]
    sources: Sequence[Source]
    rounds: int
    warmup: int
    seed: int
    cores: Cores

    @property
    def calls(self) -> int:
        """Calls of `Model.generate` for one artifact."""
        return (self.rounds + self.warmup) * sum(self.batches_of(cell) for cell in self.cells)

    def batches_of(self, cell: Cell) -> int:
        """Calls of a cell in one round."""
        return 1 if cell.prompt else -(-len(self.sources) // cell.batch)


def numbers(name: str, texts: Sequence[str] | None) -> list[int]:
    """Whole numbers of at least 1 from options such as 1,8 or 16, each once and in their order.

    Raises:
        OptionError: one is not.
    """
    found = []
    for part in itertools.chain.from_iterable(text.split(",") for text in texts or ()):
        if not part.strip().isdecimal() or int(part) < 1:
            raise OptionError(f"{name} is {part.strip() or 'empty'}, expected whole numbers of at least 1, as in 1,8")
        found.append(int(part))
    return list(dict.fromkeys(found))


def batches(plan: Plan, cell: Cell, vocabulary: Sequence[int], round_number: int) -> list[list[Source]]:
    """The inputs of a cell's calls in a round.

    Args:
        plan, cell: what is measured.
        vocabulary: ids that prompts of a given length are cut from.
        round_number: prompts differ from round to round, and are the same in every run with the seed.
    """
    if cell.prompt is None:
        return full_batches(plan.sources, cell.batch)
    rng = np.random.default_rng([plan.seed, cell.batch, cell.prompt, round_number])
    ids = rng.choice(np.asarray(vocabulary), (cell.batch, cell.prompt))
    return [[row.tolist() for row in ids]]


def full_batches(sources: Sequence[Source], batch_size: int) -> list[list[Source]]:
    """Every source at least once, in batches that are all full: the first ones fill up the last."""
    count = -(-len(sources) // batch_size)
    endless = itertools.cycle(sources)
    return [list(itertools.islice(endless, batch_size)) for _ in range(count)]


def order_of(plan: Plan, round_number: int) -> list[int]:
    """In which order a round takes the cells: another one each round, so that drift meets all alike."""
    order = np.random.default_rng([plan.seed, round_number]).permutation(len(plan.cells))
    return [int(index) for index in order]
