"""Golden samples: what PyTorch gave when the bundle was made, so that a device without torch can check itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgeformer.runtime.bundle import GoldenSample

if TYPE_CHECKING:
    from edgeformer.exporter.reference import Generating
    from edgeformer.runtime.names import Sizes

COUNT = 12
NUM_BEAMS = 4
MAX_NEW_TOKENS = 24
LONGEST = 128  # tokens of a source; long enough to cross the windows and buckets of targets


def random_sources(vocabulary: Sequence[int], longest: int, seed: int = 0) -> list[list[int]]:
    """Sources of ids drawn evenly, the shortest of one token, the longest of `longest`."""
    rng = random.Random(seed)
    lengths = [1, longest, *(rng.randint(1, min(longest, 16)) for _ in range(COUNT - 2))]
    return [rng.choices(vocabulary, k=length) for length in lengths]


def longest_source(sizes: Sizes) -> int:
    """Tokens of the longest golden source: all that the model takes, where that is not too long to compute."""
    most = sizes.max_source_positions if sizes.has_source else max(1, sizes.max_positions - MAX_NEW_TOKENS)
    return min(most, LONGEST)


def golden_sample(model: Generating, source: Sequence[int]) -> GoldenSample:
    """Greedy and beam search over one source in PyTorch without a cache."""
    from edgeformer.exporter import reference  # brings torch, which a device that checks itself may lack
    from edgeformer.models.protocols import kind_of

    room = model.config.max_positions - (1 if kind_of(model) == "encoder-decoder" else len(source))
    most = max(1, min(MAX_NEW_TOKENS, room))
    (greedy,) = reference.greedy(model, [source], most)
    beam, beam_score = reference.beam_search(model, source, most, NUM_BEAMS)[0]
    return GoldenSample(
        source_ids=tuple(source),
        greedy=tuple(greedy),
        greedy_score=sum(reference.log_probs(model, source, greedy)[:most]),
        beam=tuple(beam),
        beam_score=beam_score,
        max_new_tokens=most,
    )


def golden_samples(
    model: Generating, sources: Sequence[Sequence[int]], on_done: Callable[[], None] = lambda: None
) -> tuple[GoldenSample, ...]:
    samples = []
    for source in sources:
        samples.append(golden_sample(model, source))
        on_done()
    return tuple(samples)
