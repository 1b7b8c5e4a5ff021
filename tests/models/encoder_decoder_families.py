"""What every encoder-decoder promises, against the same weights in Hugging Face's transformers."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from edgeformer.models.checkpoint import load_checkpoint

TOLERANCE = 2e-5
ROWS = ((7, 9), (1, 4), (4, 1), (6, 6))  # (source length, target length)


def randomized(model: PreTrainedModel, std: float = 0.4) -> PreTrainedModel:
    """Biases and gains begin at 0 and 1, where a mix-up would not show; other weights are made to matter."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
            elif parameter.requires_grad:
                parameter.normal_(std=std)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model.eval()


def saved(model: PreTrainedModel, folder: Path, **changes: Any) -> Path:
    """A checkpoint folder, with keys of its config.json changed; None takes one out."""
    model.save_pretrained(folder)
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return folder


@dataclasses.dataclass(frozen=True)
class Case:
    """Rows of several lengths, and the logits (target_len, vocab_size) that are expected of each."""

    sources: list[Tensor]
    targets: list[Tensor]
    expected: list[Tensor]

    @property
    def source_lengths(self) -> Tensor:
        return torch.tensor([len(source) for source in self.sources])


def random_case(reference: PreTrainedModel, source_vocab_size: int, vocab_size: int) -> Case:
    generator = torch.Generator().manual_seed(7)
    sources = [torch.randint(source_vocab_size, (length,), generator=generator) for length, _ in ROWS]
    targets = [torch.randint(vocab_size, (length,), generator=generator) for _, length in ROWS]
    return Case(sources, targets, [reference_logits(reference, *row) for row in zip(sources, targets, strict=True)])


@torch.no_grad()
def reference_logits(model: PreTrainedModel, source: Tensor, target: Tensor) -> Tensor:
    """(target_len, vocab_size), of a row alone, without a cache."""
    logits: Tensor = model(
        input_ids=source[None],
        attention_mask=torch.ones(1, len(source), dtype=torch.long),
        decoder_input_ids=target[None],
        use_cache=False,
    ).logits
    return logits[0]


def padded(rows: list[Tensor], length: int, with_id: int) -> Tensor:
    return torch.stack([nn.functional.pad(row, (0, length - len(row)), value=with_id) for row in rows])


def close(actual: Tensor, expected: Tensor) -> None:
    """Logits of T5 that are not scaled are some tens, and so is what their last digits are off by."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * max(1.0, float(expected.abs().max()) / 4))


def check(reference: PreTrainedModel, folder: Path) -> Any:
    """Load what was saved, and hold it against the reference in every way of running it."""
    model = load_checkpoint(folder)
    in_every_way(model, random_case(reference, model.config.source_vocab_size, model.config.vocab_size))
    return model


@torch.no_grad()
def in_every_way(model: Any, case: Case) -> None:
    rows_alone(model, case)
    for extra, with_id in ((0, 0), (3, model.config.pad_token_id)):
        rows_together(model, case, extra, with_id)
    for sizes in ((3, 2, 1), (1,), (9,), (2, 5)):
        in_steps(model, case, sizes)


def rows_alone(model: Any, case: Case) -> None:
    for source, target, expected in zip(case.sources, case.targets, case.expected, strict=True):
        close(model(source[None], torch.tensor([len(source)]), target[None])[0], expected)


def rows_together(model: Any, case: Case, extra: int, with_id: int) -> None:
    """A ragged batch, padded by `extra` more than its longest row asks for."""
    source = padded(case.sources, max(map(len, case.sources)) + extra, with_id)
    target = padded(case.targets, max(map(len, case.targets)) + extra, with_id)
    logits = model(source, case.source_lengths, target)
    for row, expected in zip(logits, case.expected, strict=True):
        close(row[: len(expected)], expected)


def in_steps(model: Any, case: Case, sizes: tuple[int, ...]) -> None:
    """With a cache whose rows fill up unevenly: row by row, the sizes begin elsewhere."""
    config, batch = model.config, len(case.targets)
    source = padded(case.sources, max(map(len, case.sources)), config.pad_token_id)
    encoded = model.encode(source, case.source_lengths)
    capacity = max(map(len, case.targets)) + 4
    shape, dtype = (batch, config.num_kv_heads, capacity, config.head_dim), encoded[0].dtype
    caches = [torch.full(shape, 9.0, dtype=dtype) for _ in range(2 * config.num_layers)]
    turns = [itertools.cycle(sizes[i % len(sizes) :] + sizes[: i % len(sizes)]) for i in range(batch)]
    done, said = [0] * batch, [list[Tensor]() for _ in range(batch)]
    while any(done[i] < len(target) for i, target in enumerate(case.targets)):
        takes = [min(next(turns[i]), len(target) - done[i]) for i, target in enumerate(case.targets)]
        q_len = max(takes)
        new = [target[at : at + take] for target, at, take in zip(case.targets, done, takes, strict=True)]
        # A row that is done stays at the cache's end, with room for what pads it.
        lengths = torch.tensor([min(at, capacity - q_len) for at in done])
        at = torch.arange(q_len).expand(batch, -1)
        logits, caches = model.step(
            padded(new, q_len, config.pad_token_id), lengths, at, case.source_lengths, caches, encoded
        )
        for i, take in enumerate(takes):
            said[i].append(logits[i, :take])
            done[i] += take
    for rows, expected in zip(said, case.expected, strict=True):
        close(torch.cat(rows), expected)
