"""Decoding in plain PyTorch, without a cache: the reference that every artifact is compared with.

Each step computes everything again from the source and the tokens so far. Slow and simple on purpose: it shares no
code with the runtime. A source is what an encoder-decoder reads, or the prompt of a language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgeformer.models.protocols import kind_of

Generating = Any  # an edgeformer.models.protocols.Decoder or EncoderDecoder


def pad(rows: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Rows of ids as one right-padded int64 tensor (batch, longest), and their lengths (batch,)."""
    longest = max(map(len, rows))
    padded = [[*row, *[fill] * (longest - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.int64), torch.tensor([len(row) for row in rows])


def target_logits(model: Generating, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
    """What the model expects after each source, and after each token of its target: (batch, longest + 1, vocab_size).

    What stands behind a shorter target means nothing.
    """
    config = model.config
    if kind_of(model) == "encoder-decoder":
        source_ids, source_lengths = pad(sources, config.pad_token_id)
        given, _ = pad([[config.start_token_id, *target] for target in targets], config.pad_token_id)
        logits: Tensor = model(source_ids, source_lengths, given)
        return logits
    prompts = [list(source) or [config.start_token_id] for source in sources]
    ids, _ = pad([[*prompt, *target] for prompt, target in zip(prompts, targets, strict=True)], config.pad_token_id)
    last = torch.tensor([len(prompt) - 1 for prompt in prompts])[:, None]
    at = last + torch.arange(max(map(len, targets)) + 1)  # (batch, longest + 1)
    logits = model(ids)
    return logits[torch.arange(len(prompts))[:, None], at.clamp(max=ids.shape[1] - 1)]


@torch.inference_mode()
def greedy(model: Generating, sources: Sequence[Sequence[int]], max_new_tokens: int) -> list[list[int]]:
    """The most likely token at each step, for rows of source ids; the end token is left out of the result."""
    ends = set(model.config.eos_token_ids)
    targets: list[list[int]] = [[] for _ in sources]
    going = list(range(len(sources)))
    for _ in range(max_new_tokens):
        logits = target_logits(model, [sources[row] for row in going], [targets[row] for row in going])
        for row, token in zip(going, logits[:, -1].argmax(-1).tolist(), strict=True):
            targets[row].append(token)
        going = [row for row in going if targets[row][-1] not in ends]
        if not going:
            break
    return [target[:-1] if target and target[-1] in ends else target for target in targets]


@torch.inference_mode()
def beam_search(
    model: Generating,
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
    candidates = max(2, 1 + len(config.eos_token_ids)) * num_beams
    running: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []
    for length in range(1, max_new_tokens + 1):
        logits = target_logits(model, [source] * len(running), [ids for ids, _ in running])[:, -1]
        totals = logits.log_softmax(-1) + torch.tensor([score for _, score in running])[:, None]
        values, flat = totals.flatten().topk(min(candidates, totals.numel()))
        onward: list[tuple[list[int], float]] = []
        for rank, (value, index) in enumerate(zip(values.tolist(), flat.tolist(), strict=True)):
            beam, token = divmod(index, config.vocab_size)
            ends = token in config.eos_token_ids
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
def log_probs(model: Generating, source: Sequence[int], target: Sequence[int]) -> list[float]:
    """Log-probability of each target token given the source and those before it; last the (first) end token's."""
    ends = model.config.eos_token_ids[:1]
    logits = target_logits(model, [source], [target])[0]
    wanted = torch.tensor([*target, *ends], dtype=torch.int64)
    picked: list[float] = logits[: len(wanted)].log_softmax(-1).gather(1, wanted[:, None])[:, 0].tolist()
    return picked
