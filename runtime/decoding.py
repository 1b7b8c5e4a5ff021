"""From rows and options to texts: greedy search, sampling or beam search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from edgeformer.runtime.backends import Floats, Ints, RewindingRows, Rows
from edgeformer.runtime.beam import beam_search
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.greedy import collect, greedy_steps
from edgeformer.runtime.lookup import Lookup, lookup_steps
from edgeformer.runtime.options import GenerationConfig
from edgeformer.runtime.processors import Processor, processors_of
from edgeformer.runtime.prompts import Limits, Prompt
from edgeformer.runtime.results import Hypothesis
from edgeformer.runtime.sampling import Sampler, input_seeds
from edgeformer.runtime.stopping import Stops

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class Decoding:
    """How texts are generated in one call.

    Attributes:
        options, limits: what was asked for.
        processors: what that asks of each step.
        lookup: how tokens are guessed; None where they are not.
        tokenizer: of the tokens, for texts that end a text.
    """

    options: GenerationConfig
    limits: Limits
    processors: tuple[Processor, ...]
    lookup: Lookup | None = None
    tokenizer: Tokenizer | None = None

    @classmethod
    def of(
        cls,
        options: GenerationConfig,
        limits: Limits,
        vocab_size: int,
        step_noise: float | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> Decoding:
        """What options say of a model.

        Args:
            step_noise: as in `RewindingExecutor`; None where rows cannot be rewound.
            tokenizer: of the tokens that are generated, if there is one.

        Raises:
            OptionError: ids outside the vocabulary; drafts where rows cannot be rewound; texts to stop at, without a
                tokenizer.
        """
        lookup = None
        if (most := options.prompt_lookup_num_tokens) > 0:
            if step_noise is None:
                raise OptionError(
                    f"prompt_lookup_num_tokens is {most}, and what runs here cannot take back tokens that were "
                    "guessed: set it to 0, or run an artifact of ort-cpu"
                )
            lookup = Lookup(most, step_noise)
        if options.stop_strings and tokenizer is None:
            raise OptionError("stop_strings are texts, and the bundle has no tokenizer: give eos_token_id instead")
        return cls(options, limits, processors_of(options, limits, vocab_size), lookup, tokenizer)

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

    def stops(self, prompt: Prompt) -> Stops | None:
        """What ends rows by what their tokens spell; None where nothing does."""
        if not self.options.stop_strings or self.tokenizer is None:
            return None
        return Stops(self.options.stop_strings, self.tokenizer, prompt, self.options.num_return_sequences)

    def steps(
        self,
        rows: Rows,
        prompt: Prompt,
        seeds: Sequence[int],
        on_step: Callable[[], None] = lambda: None,
        source: Sequence[int] = (),
        stops: Stops | None = None,
    ) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Tokens as they come, where no beams are searched; arguments are those of `run` and of `greedy_steps`."""
        if self.lookup is not None:
            one = cast("RewindingRows", rows)
            return lookup_steps(one, prompt, self.limits, self.lookup, self.processors, on_step, source)
        return greedy_steps(rows, prompt, self.limits, self.processors, self.sampler(seeds), on_step, stops)

    def run(
        self,
        rows: Rows,
        prompt: Prompt,
        seeds: Sequence[int],
        on_step: Callable[[], None],
        source: Sequence[int] = (),
    ) -> list[list[Hypothesis]]:
        """Texts of each row's prompt: the n-best, best first, or as many as were to be drawn.

        Args:
            rows: fresh rows, as many as the prompt has.
            seeds: one for each.
            on_step: called after every step.
            source: tokens to look for drafts in, beside those of the prompt.
        """
        if self.options.num_beams > 1:
            return beam_search(rows, prompt, self.limits, self.options, self.processors, on_step)
        each = self.options.num_return_sequences
        stops = self.stops(prompt)
        steps = self.steps(rows, prompt, seeds, on_step, source, stops)
        found = collect(steps, len(prompt.ids) * each, self.limits.ends, stops)
        return [found[first : first + each] for first in range(0, len(found), each)]
