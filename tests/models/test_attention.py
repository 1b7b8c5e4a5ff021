"""Attention as the paper defines it: sections 3.2.1 and 3.2.2."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from edgeformer.models.attention import (
    MultiHeadAttention,
    attention,
    attention_scores,
    attention_weights,
    causal_mask,
    source_mask,
)

SHAPE = (3, 4, 6, 8)  # (batch, num_heads, q_len or kv_len, head_dim)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_mask(seed: int = 7) -> Tensor:
    """Bool (batch, 1, q_len, kv_len); each query sees about half of the keys, and at least one."""
    mask = normal(3, 1, 6, 6, seed=seed) > 0
    mask[..., 2] = True
    return mask


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


# Scaled dot-product attention


def test_the_weights_of_a_row_sum_to_1_and_masked_ones_are_0() -> None:
    mask = random_mask()
    weights = attention_weights(normal(*SHAPE, seed=1), normal(*SHAPE, seed=2), mask)
    same(weights.sum(-1), torch.ones(3, 4, 6, dtype=torch.float64))
    seen = mask.expand_as(weights)
    assert (weights[~seen] == 0).all()
    assert (weights[seen] > 0).all()


def test_attention_is_the_weighted_sum_of_the_values() -> None:
    query, key, value = (normal(*SHAPE, seed=seed) for seed in range(3))
    mask = random_mask()
    same(attention(query, key, value, mask), attention_weights(query, key, mask) @ value)


def test_a_query_that_sees_one_key_gets_its_value() -> None:
    query, key, value = (normal(*SHAPE, seed=seed) for seed in range(3))
    only = torch.eye(6, dtype=torch.bool).expand(3, 1, 6, 6)
    same(attention(query, key, value, only), value)


def test_what_is_masked_changes_nothing() -> None:
    query, key, value = (normal(*SHAPE, seed=seed) for seed in range(3))
    mask = torch.ones(3, 1, 6, 6, dtype=torch.bool)
    mask[..., 4:] = False
    before = attention(query, key, value, mask)
    key[:, :, 4:], value[:, :, 4:] = 1e9, -1e9
    same(attention(query, key, value, mask), before)


def test_attention_does_not_know_the_order_of_the_keys() -> None:
    query, key, value = (normal(*SHAPE, seed=seed) for seed in range(3))
    mask, order = random_mask(), [3, 0, 5, 1, 4, 2]
    shuffled = attention(query, key[:, :, order], value[:, :, order], mask[..., order])
    same(shuffled, attention(query, key, value, mask))


@pytest.mark.parametrize("head_dim", [8, 64, 256])
def test_scaling_brings_the_variance_of_the_scores_from_head_dim_to_1(head_dim: int) -> None:
    query, key = (normal(16, 4, 64, head_dim, seed=seed) for seed in range(2))
    unscaled = (query @ key.transpose(-2, -1)).var().item()
    assert unscaled == pytest.approx(head_dim, rel=0.05)
    assert attention_scores(query, key).var().item() == pytest.approx(1, rel=0.05)


# Masks


def test_a_query_sees_keys_up_to_its_own_position() -> None:
    mask = causal_mask(torch.tensor([[0, 1, 2], [2, 3, 4]]), kv_len=5)
    assert mask.shape == (2, 1, 3, 5)
    assert mask[:, 0].int().tolist() == [
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]],
        [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]],
    ]


def test_every_query_sees_the_source_up_to_its_length() -> None:
    mask = source_mask(torch.tensor([1, 3]), q_len=2, source_len=3)
    assert mask.shape == (2, 1, 2, 3)
    assert mask[:, 0].int().tolist() == [[[1, 0, 0], [1, 0, 0]], [[1, 1, 1], [1, 1, 1]]]


# Multi-head attention


def pair(d_model: int = 24, num_heads: int = 4) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Ours and torch's, with the same random weights."""
    torch.manual_seed(3)
    ours, theirs = MultiHeadAttention(d_model, num_heads), nn.MultiheadAttention(d_model, num_heads, batch_first=True)
    projections = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.data = torch.cat([projection.weight.data for projection in projections])
    theirs.in_proj_bias.data = torch.cat([projection.bias.data for projection in projections])
    theirs.out_proj.load_state_dict(ours.output.state_dict())
    return ours.double(), theirs.double()


@pytest.mark.parametrize("num_heads", [1, 4, 24])
def test_self_attention_agrees_with_torch(num_heads: int) -> None:
    ours, theirs = pair(num_heads=num_heads)
    x = normal(3, 6, 24)
    mask = random_mask()
    expected, _ = theirs(x, x, x, attn_mask=~mask[:, 0].repeat_interleave(num_heads, 0))
    same(ours(x, mask), expected)


def test_cross_attention_agrees_with_torch() -> None:
    ours, theirs = pair()
    x, source, lengths = normal(3, 5, 24, seed=1), normal(3, 7, 24, seed=2), torch.tensor([7, 1, 4])
    expected, _ = theirs(x, source, source, key_padding_mask=torch.arange(7) >= lengths[:, None])
    same(ours.attend(x, ours.key_value(source), source_mask(lengths, 5, 7)), expected)


def test_its_weights_are_the_ones_that_torch_reports() -> None:
    ours, theirs = pair()
    x, mask = normal(3, 6, 24), random_mask()
    _, expected = theirs(x, x, x, attn_mask=~mask[:, 0].repeat_interleave(4, 0), average_attn_weights=False)
    same(attention_weights(ours.split_heads(ours.query(x)), ours.key_value(x)[0], mask), expected)


def test_a_step_over_a_cache_equals_attention_over_everything_so_far() -> None:
    ours, _ = pair()
    x, capacity = normal(1, 6, 24), 9
    expected = ours(x, causal_mask(torch.arange(6)[None], 6))
    cache = (torch.zeros(1, 4, capacity, 6, dtype=torch.float64), torch.zeros(1, 4, capacity, 6, dtype=torch.float64))
    outputs = []
    for start, stop in [(0, 3), (3, 4), (4, 6)]:
        mask = causal_mask(torch.arange(start, stop)[None], capacity)
        output, cache = ours.step(x[:, start:stop], cache, torch.tensor([start]), mask)
        outputs.append(output)
    same(torch.cat(outputs, dim=1), expected)
    for cached, projected in zip(cache, ours.key_value(x), strict=True):
        same(cached[:, :, :6], projected)
