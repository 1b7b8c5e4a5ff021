"""Greedy and beam search in PyTorch for many sources at once, without a cache.

`edgeformer.exporter.reference` searches one source at a time; this is the same beam search with the steps of all
sources in one forward pass, and with Hugging Face's other values of early_stopping. Tests hold the two together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from edgeformer.exporter import reference
from edgeformer.models.transformer import Transformer
from edgeformer.runtime import GenerationConfig

BATCH_SIZE = 64

Hypothesis = tuple[list[int], float]  # ids without the end token, score


def search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    config: GenerationConfig,
    on_done: Callable[[int], None] = lambda done: None,
) -> list[list[int]]:
    """The best ids for each source, in batches of like lengths; `on_done` hears how many more are done."""
    most = config.max_new_tokens or model.config.max_positions
    found: dict[int, list[int]] = {}
    by_length = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for first in range(0, len(sources), BATCH_SIZE):
        batch = by_length[first : first + BATCH_SIZE]
        rows = [sources[i] for i in batch]
        if config.num_beams == 1:
            best = reference.greedy(model, rows, most)
        else:
            best = [hypotheses[0][0] for hypotheses in beam_search(model, rows, config)]
        found |= zip(batch, best, strict=True)
        on_done(len(batch))
    return [found[i] for i in range(len(sources))]


@dataclasses.dataclass(slots=True)
class Search:
    """The hypotheses of one source."""

    source: Sequence[int]
    running: list[Hypothesis] = dataclasses.field(default_factory=lambda: [([], 0.0)])
    finished: list[Hypothesis] = dataclasses.field(default_factory=list)


@torch.inference_mode()
def beam_search(
    model: Transformer, sources: Sequence[Sequence[int]], config: GenerationConfig
) -> list[list[Hypothesis]]:
    """Beam search as Hugging Face defines it; the n-best of each source, best first, scored as the runtime does."""
    pad, start = model.config.pad_token_id, model.config.bos_token_id
    most = config.max_new_tokens or model.config.max_positions
    searches = [Search(source) for source in sources]
    going = list(searches)
    for length in range(1, most + 1):
        source_ids, source_lengths = reference.pad([s.source for s in going for _ in s.running], pad)
        targets = torch.tensor([[start, *ids] for s in going for ids, _ in s.running])
        log_probs = model(source_ids, source_lengths, targets)[:, -1].log_softmax(-1)  # (rows, vocab_size)
        for one, rows in zip(going, log_probs.split([len(s.running) for s in going]), strict=True):
            advance(one, rows, length, length == most, model.config.eos_token_id, config)
        going = [s for s in going if not done(s, length, most, config)]
        if not going:
            break
    return [s.finished for s in searches]


def advance(search: Search, log_probs: Tensor, length: int, last: bool, end: int, config: GenerationConfig) -> None:
    """Take one step's log-probabilities (running, vocab_size)."""
    beams, penalty = config.num_beams, config.length_penalty
    totals = log_probs + torch.tensor([score for _, score in search.running])[:, None]
    values, flat = totals.flatten().topk(min(2 * beams, totals.numel()))
    onward: list[Hypothesis] = []
    for rank, (value, index) in enumerate(zip(values.tolist(), flat.tolist(), strict=True)):
        beam, token = divmod(index, log_probs.shape[1])
        ids = search.running[beam][0] + [token] * (token != end)
        if (token == end or last) and rank < beams:
            search.finished.append((ids, value / length**penalty))
        if token != end and len(onward) < beams:
            onward.append((ids, value))
    search.running = onward
    search.finished = sorted(search.finished, key=lambda hypothesis: -hypothesis[1])[:beams]


def done(search: Search, length: int, most: int, config: GenerationConfig) -> bool:
    """Whether num_beams hypotheses are finished that, by the rule of early_stopping, no running one can displace."""
    if len(search.finished) < config.num_beams:
        return False
    if config.early_stopping is True:
        return True
    hopeful = config.early_stopping == "never" and config.length_penalty > 0
    attainable = search.running[0][1] / (most if hopeful else length) ** config.length_penalty
    return attainable <= search.finished[-1][1]
