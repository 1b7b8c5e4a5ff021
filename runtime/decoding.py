"""From rows and options to texts: greedy search, sampling or beam search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from edgeformer.runtime.backends import Rows
from edgeformer.runtime.beam import beam_search
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.greedy import greedy
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.processors import Processor, processors_of
from edgeformer.runtime.prompts import Limits, Prompt
from edgeformer.runtime.results import Hypothesis
from edgeformer.runtime.sampling import Sampler, input_seeds


@dataclasses.dataclass(frozen=True, slots=True)
class Decoding:
    """How texts are generated in one call.

    Attributes:
        options, limits: what was asked for.
        processors: what that asks of each step.
    """

    options: GenerationConfig
    limits: Limits
    processors: tuple[Processor, ...]

    @classmethod
    def of(cls, options: GenerationConfig, limits: Limits, vocab_size: int) -> Decoding:
        """What options say of a model.

        Raises:
            OptionError: ids outside the vocabulary.
        """
        return cls(options, limits, processors_of(options, limits, vocab_size))

    @property
    def rows_each(self) -> int:
        """Rows that an input becomes."""
        return max(self.options.num_beams, self.options.num_return_sequences)

    def seeds(self, inputs: int) -> list[int]:
        """A seed for each input.

        Raises:
            OptionError: several were given, and not one for each.
        """
        if not self.options.do_sample:
            return [0] * inputs
        seeds = input_seeds(self.options.seed, inputs)
        if len(seeds) != inputs:
            raise OptionError(
                f"seed has {len(seeds)} numbers, and there are {inputs} inputs: give one each, or one number"
            )
        return seeds

    def sampler(self, seeds: Sequence[int]) -> Sampler | None:
        """What draws tokens for inputs with these seeds; None where none are drawn."""
        return Sampler(self.options, seeds) if self.options.do_sample else None

    def run(
        self, rows: Rows, prompt: Prompt, seeds: Sequence[int], on_step: Callable[[], None]
    ) -> list[list[Hypothesis]]:
        """Texts of each row's prompt: the n-best, best first, or as many as were to be drawn.

        Args:
            rows: fresh rows, as many as the prompt has.
            seeds: one for each.
            on_step: called after every step.
        """
        if self.options.num_beams > 1:
            return beam_search(rows, prompt, self.limits, self.options, self.processors, on_step)
        found = greedy(rows, prompt, self.limits, self.processors, self.sampler(seeds), on_step)
        each = self.options.num_return_sequences
        return [found[first : first + each] for first in range(0, len(found), each)]
