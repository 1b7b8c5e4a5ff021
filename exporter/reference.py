"""Decoding in plain PyTorch, without a cache: the reference that every artifact is compared with.

Each step computes everything again from the source and the tokens so far. Slow and simple on purpose: it shares no
code with the runtime.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from edgeformer.models.transformer import Transformer


def pad(rows: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Rows of ids as one right-padded int64 tensor (batch, longest), and their lengths (batch,)."""
    longest = max(map(len, rows))
    padded = [[*row, *[fill] * (longest - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.int64), torch.tensor([len(row) for row in rows])


@torch.inference_mode()
def greedy(model: Transformer, sources: Sequence[Sequence[int]], max_new_tokens: int) -> list[list[int]]:
    """The most likely token at each step, for rows of source ids; the end token is left out of the result."""
    config = model.config
    source_ids, source_lengths = pad(sources, config.pad_token_id)
    targets = torch.full((len(sources), 1), config.bos_token_id)
    unfinished = torch.ones(len(sources), dtype=torch.bool)
    for _ in range(max_new_tokens):
        logits = model(source_ids[unfinished], source_lengths[unfinished], targets[unfinished])
        token = torch.full((len(sources),), config.eos_token_id)
        token[unfinished] = logits[:, -1].argmax(-1)
        targets = torch.cat((targets, token[:, None]), dim=1)
        unfinished &= token != config.eos_token_id
        if not unfinished.any():
            break
    return [until(row, config.eos_token_id) for row in targets[:, 1:].tolist()]


def until(row: Sequence[int], end: int) -> list[int]:
    """The ids before the first `end`."""
    return list(row[: row.index(end)] if end in row else row)


@torch.inference_mode()
def beam_search(
    model: Transformer,
    source: Sequence[int],
    max_new_tokens: int,
    num_beams: int,
    length_penalty: float = 1.0,
) -> list[tuple[list[int], float]]:
    """Beam search over one source as Hugging Face defines it (early_stopping False); n-best (ids, score), best first.

    The score is the sum of log-probabilities, the end token's included, divided by the number of tokens to the power of
    length_penalty.
    """
    config = model.config
    running: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []
    for length in range(1, max_new_tokens + 1):
        targets = torch.tensor([[config.bos_token_id, *ids] for ids, _ in running])
        sources = torch.tensor([source]).expand(len(running), -1)
        logits = model(sources, torch.tensor([len(source)] * len(running)), targets)[:, -1]
        totals = logits.log_softmax(-1) + torch.tensor([score for _, score in running])[:, None]
        values, flat = totals.flatten().topk(min(2 * num_beams, totals.numel()))
        onward: list[tuple[list[int], float]] = []
        for rank, (value, index) in enumerate(zip(values.tolist(), flat.tolist(), strict=True)):
            beam, token = divmod(index, config.vocab_size)
            ends = token == config.eos_token_id
            if (ends or length == max_new_tokens) and rank < num_beams:
                finished.append((running[beam][0] + [token] * (not ends), value / length**length_penalty))
            if not ends and len(onward) < num_beams:
                onward.append((running[beam][0] + [token], value))
        running = onward
        finished = sorted(finished, key=lambda hypothesis: -hypothesis[1])[:num_beams]
        if len(finished) == num_beams and running[0][1] / length**length_penalty <= finished[-1][1]:
            break
    return finished


@torch.inference_mode()
def log_probs(model: Transformer, source: Sequence[int], target: Sequence[int]) -> list[float]:
    """Log-probability of each target token given the source and those before it, the end token's last."""
    config = model.config
    given = torch.tensor([[config.bos_token_id, *target]])
    logits = model(torch.tensor([source]), torch.tensor([len(source)]), given)[0]
    wanted = torch.tensor([*target, config.eos_token_id])
    picked: list[float] = logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0].tolist()
    return picked
