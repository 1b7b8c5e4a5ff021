"""Activation functions, by the names that Hugging Face's configurations give them."""

from __future__ import annotations

from typing import Literal

Activation = Literal["gelu", "gelu-tanh", "gelu-sigmoid", "relu", "silu", "tanh"]

# `gelu-tanh` and `gelu-sigmoid` are approximations (Hendrycks and Gimpel 2016); some write the first in other ways that
# give the same numbers.
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_accurate": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
    "quick_gelu": "gelu-sigmoid",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
