"""Activations and feed-forward blocks are those of Hugging Face's names."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from edgeformer.models.activations import FUNCTIONS
from edgeformer.models.configs.activations import ACTIVATIONS
from edgeformer.models.feed_forward import FeedForward, GatedFeedForward


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_the_one_of_its_name(name: str) -> None:
    x = torch.linspace(-9, 9, 4001)
    torch.testing.assert_close(FUNCTIONS[ACTIVATIONS[name]](x), ACT2FN[name](x), rtol=0, atol=2e-6)


def test_the_block_is_two_linear_maps_around_an_activation() -> None:
    block, x = FeedForward(6, 10, "relu"), torch.randn(2, 3, 6)
    inner = (x @ block.inner.weight.T + block.inner.bias).clamp(min=0)
    torch.testing.assert_close(block(x), inner @ block.outer.weight.T + block.outer.bias)


def test_the_gate_is_what_the_activation_is_applied_to() -> None:
    block, x = GatedFeedForward(6, 10, "relu"), torch.randn(2, 3, 6)
    inner = (x @ block.gate.weight.T).clamp(min=0) * (x @ block.inner.weight.T)
    torch.testing.assert_close(block(x), inner @ block.outer.weight.T)
    assert [name for name, _ in block.named_parameters()] == ["gate.weight", "inner.weight", "outer.weight"]
