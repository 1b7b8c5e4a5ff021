"""Feed-forward blocks, which look at each position alone.

Two linear maps around an activation (Vaswani et al. 2017, section 3.3), or three with a gate (Shazeer 2020, "GLU
Variants Improve Transformer").
"""

from __future__ import annotations

from torch import Tensor, nn

from edgeformer.models.activations import FUNCTIONS
from edgeformer.models.configs.activations import Activation


class FeedForward(nn.Module):
    """outer(activation(inner(x))): (batch, len, d_model) to the same."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, *, bias: bool = True) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff, bias=bias)
        self.outer = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = FUNCTIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(x)))


class GatedFeedForward(nn.Module):
    """outer(activation(gate(x)) * inner(x)): (batch, len, d_model) to the same."""

    def __init__(self, d_model: int, d_ff: int, activation: Activation, *, bias: bool = False) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.inner = nn.Linear(d_model, d_ff, bias=bias)
        self.outer = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = FUNCTIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.activation(self.gate(x)) * self.inner(x))
