"""Activation functions, by the names that Hugging Face's configurations give them."""

from __future__ import annotations

from typing import Literal

Activation = Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "tanh"]

# `gelu_tanh` is the approximation of Hendrycks and Gimpel 2016, written in several ways that give the same numbers.
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
