"""What transformers gives for rows alone, and how far an artifact is from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from edgeformer.exporter import reference
from edgeformer.models.transformer import Transformer
from edgeformer.runtime import EncoderModel, Model
from edgeformer.runtime.encoder_text import EncodedInput

NEW_TOKENS, BEAMS = 32, 4
# Random models repeat themselves, and then any two of them agree: no two tokens come twice.
OPTIONS = {"max_new_tokens": NEW_TOKENS, "no_repeat_ngram_size": 2}
LENGTHS = (5, 1, 17, 30, 8)  # of a ragged batch
Ids = tuple[int, ...]


def random_rows() -> list[list[int]]:
    """Rows of ids that every one of the models knows."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(10, 60, (length,), generator=generator).tolist() for length in LENGTHS]


@torch.inference_mode()
def generated(model: Any, row: Sequence[int], beams: int) -> Ids:
    """Ids that transformers generates for a row alone, without what begins them and without the end token."""
    if isinstance(model, Transformer):
        if beams == 1:
            return tuple(reference.greedy(model, [row], NEW_TOKENS)[0])
        return tuple(reference.beam_search(model, row, NEW_TOKENS, beams)[0][0])
    ids = torch.tensor([row])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=beams, **OPTIONS)
    found = found[0].tolist()
    new = found[1:] if model.config.is_encoder_decoder else found[len(row) :]
    ends = model.generation_config.eos_token_id
    ends = set(ends) if isinstance(ends, list) else {ends}
    return tuple(new[: next((at for at, token in enumerate(new) if token in ends), len(new))])


@torch.inference_mode()
def log_probs(model: Any, row: Sequence[int], target: Sequence[int]) -> list[float]:
    """The log-probability of each token of a target, after a row."""
    if isinstance(model, Transformer):
        return reference.log_probs(model, row, target)[: len(target)]
    if model.config.is_encoder_decoder:
        given = torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]])
        logits = model(input_ids=torch.tensor([row]), decoder_input_ids=given).logits[0]
    else:
        logits = model(input_ids=torch.tensor([[*row, *target[:-1]]])).logits[0, len(row) - 1 :]
    wanted = torch.tensor(target)[:, None]
    found: list[float] = logits.log_softmax(-1).gather(1, wanted)[:, 0].tolist()
    return found


@torch.inference_mode()
def encoded(model: Any, row: Sequence[int], pooled: bool) -> np.ndarray[Any, Any]:
    """What transformers' encoder gives for a row: the head's logits, or hidden states, or their normalized mean."""
    ids = torch.tensor([row])
    found = model(input_ids=ids, attention_mask=torch.ones_like(ids))
    values = found.logits[0] if "logits" in found else found.last_hidden_state[0]
    values = torch.nn.functional.normalize(values.mean(0), dim=0) if pooled else values
    return np.asarray(values.numpy())


def score_difference(model: Model, rows: list[list[int]], expected: dict[Ids, list[float]]) -> float:
    """The largest difference of a token's log-probability, of all rows in one ragged batch."""
    found = model.score(rows, list(expected))
    pairs = zip(found, expected.values(), strict=True)
    return max(float(np.abs(np.subtract(s.token_log_probs[: len(e)], e)).max()) for s, e in pairs)


def output_difference(model: EncoderModel, rows: list[list[int]], expected: list[np.ndarray[Any, Any]]) -> float:
    """The largest difference of an output, as a share of their root mean square; all rows in one ragged batch."""
    given = [EncodedInput(tuple(row), (0,) * len(row)) for row in rows]
    found = model.run_together(given, model.record.output, [range(len(row)) for row in rows])
    scale = np.sqrt(np.mean(np.square(np.concatenate([values.ravel() for values in expected]))))
    return max(float(np.abs(a - b).max() / scale) for a, b in zip(found, expected, strict=True))
