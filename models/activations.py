"""The functions behind `edgeformer.models.configs.activations`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from edgeformer.models.configs.activations import Activation


def gelu_sigmoid(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "gelu-sigmoid": gelu_sigmoid,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}
