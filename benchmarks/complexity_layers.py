"""One layer of each kind that Table 1 of "Attention Is All You Need" compares, as torch modules that export.

All take x, float32 (1, n, d), and give the same shape. The attentions have no projections: the table counts what grows
with the square of n, and a projection, n d^2, is what a convolution of width 1 costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNEL = 3  # the width k of the convolution
WINDOW = 64  # the neighbourhood r of restricted attention: positions in a block, which see the block before as well
HEAD_DIM = 64


def heads(x: Tensor) -> Tensor:
    split: Tensor = x.unflatten(-1, (-1, HEAD_DIM))
    return split.transpose(-3, -2)  # (..., num_heads, n, head_dim)


def merged(x: Tensor) -> Tensor:
    return x.transpose(-3, -2).flatten(-2)  # (..., n, d)


class Recurrent(nn.Module):
    """An LSTM: each position waits for the one before it."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, d, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.lstm(x)[0]
        return result


class Convolutional(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.convolution(x.mT)
        return result.mT


class SelfAttention(nn.Module):
    """Fused: what is between scores and result need not be kept."""

    def __init__(self, d: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        y = heads(x)
        return merged(F.scaled_dot_product_attention(y, y, y))


class NaiveSelfAttention(nn.Module):
    """The same by its definition: products, softmax, products."""

    def __init__(self, d: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        y = heads(x)
        return merged((y @ y.mT / HEAD_DIM**0.5).softmax(-1) @ y)


class RestrictedAttention(nn.Module):
    """Blocks of r positions that see themselves and the block before: between r and 2 r neighbours each."""

    def __init__(self, d: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        blocks = heads(x.unflatten(1, (-1, WINDOW)))  # (1, n / r, num_heads, r, head_dim)
        before = torch.cat((torch.zeros_like(blocks[:, :1]), blocks[:, :-1]), dim=1)
        keys = torch.cat((before, blocks), dim=-2)  # (1, n / r, num_heads, 2 r, head_dim)
        scores = blocks @ keys.mT / HEAD_DIM**0.5
        return merged(scores.softmax(-1) @ keys).flatten(1, 2)


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """A row of the paper's table.

    Attributes:
        operations, sequential, path: the table's own columns: complexity per layer, sequential operations, longest path
            between two positions.
        in_n, in_d: the exponents of n and d in the first.
    """

    name: str
    make: Callable[[int], nn.Module]
    operations: str
    sequential: str
    path: str
    in_n: int
    in_d: int


LAYERS = (
    Layer("self-attention", SelfAttention, "O(n^2 d)", "O(1)", "O(1)", 2, 1),
    Layer("recurrent (LSTM)", Recurrent, "O(n d^2)", "O(n)", "O(n)", 1, 2),
    Layer("convolution, k = 3", Convolutional, "O(k n d^2)", "O(1)", "O(log_k n)", 1, 2),
    Layer("restricted attention, r = 64", RestrictedAttention, "O(r n d)", "O(1)", "O(n / r)", 1, 1),
)
NAIVE = Layer("self-attention by its definition", NaiveSelfAttention, "O(n^2 d)", "O(1)", "O(1)", 2, 1)
