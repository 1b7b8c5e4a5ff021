"""T5's relative positions (Raffel et al. 2019, section 2.1): a bias of the attention's scores by distance and head."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def relative_buckets(distances: Tensor, num_buckets: int, max_distance: int, *, bidirectional: bool) -> Tensor:
    """The bucket of each distance.

    Half of the buckets of a direction hold one distance each; the other half hold ranges that grow with the logarithm
    of the distance, and the last of them all from max_distance on.

    Args:
        distances: int64, of any shape: the key's position less the query's.
        num_buckets: of all.
        max_distance: more than half of num_buckets.
        bidirectional: whether keys behind the query have buckets of their own, half of all; else they have the
            query's own.

    Returns:
        int64 of the same shape, from 0 to num_buckets - 1.
    """
    first: Tensor | int = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets * (distances > 0).long()
        distances = distances.abs()
    else:
        distances = (-distances).clamp(min=0)
    alone = num_buckets // 2
    # In float32, as the models were trained: rounding decides where a range ends.
    growth = torch.log(distances.clamp(min=1).float() / alone) / math.log(max_distance / alone)
    ranged = (alone + (growth * (num_buckets - alone)).long()).clamp(max=num_buckets - 1)
    return first + torch.where(distances < alone, distances, ranged)


class RelativeBias(nn.Module):
    """A learned number for each bucket and head.

    The buckets of all distances that differ are computed once: each step only looks numbers up.
    """

    buckets: Tensor

    def __init__(self, num_buckets: int, num_heads: int, max_distance: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.num_buckets, self.max_distance, self.bidirectional = num_buckets, max_distance, bidirectional
        self.weight = nn.Parameter(torch.randn(num_buckets, num_heads))
        self.compute_tables()

    def compute_tables(self) -> None:
        distances = torch.arange(-self.max_distance, self.max_distance + 1)
        buckets = relative_buckets(distances, self.num_buckets, self.max_distance, bidirectional=self.bidirectional)
        self.register_buffer("buckets", buckets, persistent=False)

    def forward(self, positions: Tensor, kv_len: int) -> Tensor:
        """The bias of the scores of queries at int64 positions (batch, q_len) with keys from 0 to kv_len - 1.

        Returns:
            (batch, num_heads, q_len, kv_len)
        """
        distances = torch.arange(kv_len, device=positions.device) - positions[:, :, None]  # (batch, q_len, kv_len)
        distances = distances.clamp(-self.max_distance, self.max_distance) + self.max_distance
        by_distance = self.weight[self.buckets]  # (2 * max_distance + 1, num_heads)
        return F.embedding(distances, by_distance).permute(0, 3, 1, 2)


def masked_bias(bias: Tensor, mask: Tensor) -> Tensor:
    """The bias where a boolean mask (batch, 1, q_len, kv_len) allows, and elsewhere what leaves a weight of zero.

    That is the least finite number: a query whose keys are all masked would get NaN of minus infinity.
    """
    return torch.where(mask, bias, torch.finfo(bias.dtype).min)
