"""Tiny Transformers for every test that needs one. Tests of the runtime load no torch through this file."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from edgeformer.models.transformer import Transformer

# Read when torch is imported. Threads that share tiny tensors wait for one another longer than they compute: on a busy
# machine these tests take ten times as long with two threads as with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No two sizes are the same, so that none can stand in for another.
TINY: dict[str, Any] = {
    "vocab_size": 29, "d_model": 20, "num_heads": 5, "num_encoder_layers": 2, "num_decoder_layers": 3, "d_ff": 24,
    "max_positions": 64,
}  # fmt: skip


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Transformer]:
    """Builds the tiny model, with the given config fields changed: always the same weights, in evaluation mode.

    It computes in float64, so that tests of "changes nothing" can ask for 12 digits; `.float()` gives the usual type.
    """
    import torch

    from edgeformer.models.configs import TransformerConfig
    from edgeformer.models.transformer import Transformer

    def make(**changes: Any) -> Transformer:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = Transformer(TransformerConfig(**{**TINY, **changes}))
            for parameter in model.parameters():
                if parameter.dim() == 1:  # biases and gains begin at 0 and 1, where a mix-up would not show
                    parameter.data += 0.3 * torch.randn_like(parameter)
        return model.double().eval()

    return make


@pytest.fixture(scope="session")
def half_trained(make_model: Callable[..., Transformer]) -> Transformer:
    """The tiny model after a second of learning to spell backwards: it errs, and ends its rows at many lengths.

    Random weights say one token for ever, which shows little of a decoding loop.
    """
    import torch
    import torch.nn.functional as F

    from edgeformer.exporter.reference import pad

    model, rng = make_model(dropout=0.0).float().train(), random.Random(0)
    config = model.config
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(80):
        words = [[rng.randrange(3, config.vocab_size) for _ in range(rng.randint(1, 4))] for _ in range(32)]
        source, lengths = pad(words, config.pad_token_id)
        given, _ = pad([[config.bos_token_id, *reversed(word)] for word in words], config.pad_token_id)
        wanted, _ = pad([[*reversed(word), config.eos_token_id] for word in words], -100)
        loss = F.cross_entropy(model(source, lengths, given).flatten(0, 1), wanted.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.requires_grad_(False).double().eval()
