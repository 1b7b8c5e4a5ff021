"""Muon: an optimizer for the matrices inside a network that gets more out of an epoch than AdamW.

Each matrix moves by its momentum made orthogonal, so that every direction of it learns at the same rate. After
K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), with the step size of J. Liu et al.,
"Muon is Scalable for LLM Training" (2025), which makes one learning rate do for these matrices and for those that AdamW
moves.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Three coefficients of the odd polynomial that moves singular values towards 1 (Jordan et al.), and how often.
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def has_fast_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16; where it does not, PyTorch does it far slower than in float32."""
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def orthogonalized(matrices: Tensor) -> Tensor:
    """The nearest matrices whose singular values are all about 1, computed in bfloat16 where that is fast.

    `matrices` and the result are [count, rows, columns], float32.
    """
    a, b, c = QUINTIC
    x = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(torch.bfloat16 if has_fast_bfloat16() else torch.float32)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    result: Tensor = x if matrices.shape[1] <= matrices.shape[2] else x.mT
    return result.float()


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay, for parameters of two dimensions."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for alike in by_shape.values():
                self._move(alike, group["lr"], group["momentum"], group["weight_decay"])

    def _move(self, parameters: list[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if len(gradients) != len(parameters):
            raise ValueError("a parameter has no gradient")
        averages = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in parameters]
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, averages, momentum)
        updates = orthogonalized(torch.stack(list(ahead)))
        torch._foreach_mul_(parameters, 1 - lr * weight_decay)
        scale = 0.2 * max(parameters[0].shape) ** 0.5
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.add_(update, alpha=-lr * scale)
