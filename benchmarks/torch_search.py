"""A letters-to-phonemes checkpoint in PyTorch: greedy and beam search for many words at once, without a cache.

`edgeformer.exporter.reference` searches one source at a time; this is the same beam search with the steps of all
sources in one forward pass, and with Hugging Face's other values of early_stopping. Tests hold the two together.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from edgeformer.exporter import reference
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.models.transformer import Transformer
from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.text import encode

BATCH_SIZE = 64

Hypothesis = tuple[list[int], float]  # ids without the end token, score


class Checkpoint:
    """The model, its tokenizers, and its own options of generation.

    Raises:
        CheckpointError, ConfigError: the checkpoint cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.model = load_checkpoint(folder)
        self.source, self.target = (
            Tokenizer.from_str((folder / name).read_text(encoding="utf-8"))
            for name in ("tokenizer.json", "target_tokenizer.json")
        )
        own = folder / "generation_config.json"
        self.options = GenerationConfig.from_dict(json.loads(own.read_text(encoding="utf-8")) if own.exists() else {})

    def encode(self, word: str) -> list[int]:
        return encode(self.source, word, special=True)

    def say(
        self, words: Sequence[str], config: GenerationConfig, on_done: Callable[[int], None] = lambda done: None
    ) -> list[list[int]]:
        """Ids of each word's phonemes; `on_done` hears how many more words are done."""
        return search(self.model, [self.encode(word) for word in words], config, on_done)

    def spell(self, ids: Sequence[int]) -> str:
        return str(self.target.decode(list(ids)))

    @torch.inference_mode()
    def log_prob(self, word: str, ids: Sequence[int]) -> float:
        """Natural logarithm of how likely these phonemes are, the end token included where there is room for one."""
        config, source = self.model.config, self.encode(word)
        room = slice(config.max_positions)
        given = torch.tensor([[config.bos_token_id, *ids][room]])
        wanted = torch.tensor([*ids, config.eos_token_id][room])
        logits = self.model(torch.tensor([source]), torch.tensor([len(source)]), given)[0]
        return float(logits.log_softmax(-1).gather(1, wanted[:, None]).sum())


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
    return bool(attainable <= search.finished[-1][1])
