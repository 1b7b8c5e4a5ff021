"""LLaMA (Touvron et al. 2023), and what all decoders that are built like it read of a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from edgeformer.models.configs.activations import ACTIVATIONS, Activation
from edgeformer.models.configs.keys import Keys
from edgeformer.models.configs.rope import Rope, read_rope
from edgeformer.models.configs.special_tokens import decoder_tokens
from edgeformer.models.configs.windows import Windows, no_windows

Config = TypeVar("Config", bound="LlamaConfig")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """A decoder of pre-norm layers with rotary positions, grouped heads and gated feed-forwards.

    Attributes:
        windows: for each layer, how many positions a query sees, its own among them; all where it is None.
        query_key_value_bias, output_bias, feed_forward_bias: whether these linear maps have one.
        query_key_norm: whether each head's queries and keys are normalized before they are turned.
        tied: whether the vocabulary projection is the embedding matrix.
    """

    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_ff: int
    max_positions: int
    rope: Rope
    windows: Windows
    activation: Activation = "silu"
    norm_eps: float = 1e-6
    query_key_value_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    query_key_norm: bool = False
    tied: bool = False
    pad_token_id: int = 0
    start_token_id: int = 0
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> LlamaConfig:
        """LLaMA's configuration; SmolLM's and many others' as well.

        Raises:
            ConfigError: with every key that is missing, out of range, or not understood.
        """
        bias = keys.flag("attention_bias", False)
        return read_decoder(
            cls,
            keys,
            query_key_value_bias=bias,
            output_bias=bias,
            feed_forward_bias=keys.flag("mlp_bias", False),
        )


def read_decoder(
    cls: type[Config],
    keys: Keys,
    *,
    head_dim: int | None = None,
    read_windows: Callable[[Keys, int], Windows] = no_windows,
    **choices: bool,
) -> Config:
    """A configuration of what LLaMA's descendants have in common, and of the choices of one of them.

    Args:
        cls: which of them.
        keys: of config.json; what is left unread is refused.
        head_dim: where config.json names none; d_model / num_heads where this is None as well.
        read_windows: the window of each layer, from the keys and the number of layers.
        choices: fields of `LlamaConfig`.

    Raises:
        ConfigError: with every key that is missing, out of range, or not understood.
    """
    sizes = read_sizes(keys, head_dim)
    max_positions = keys.whole("max_position_embeddings")
    rope = read_rope(keys, sizes["head_dim"], max_positions)
    max_positions = min(max_positions, rope.longest or max_positions)
    windows = read_windows(keys, sizes["num_layers"])
    fields: dict[str, Any] = {
        **sizes,
        **choices,
        **decoder_tokens(keys, sizes["vocab_size"]),
        "max_positions": max_positions,
        "rope": rope,
        "windows": tuple(window if window and window < max_positions else None for window in windows),
        "activation": keys.choice("hidden_act", ACTIVATIONS, "silu"),
        "norm_eps": keys.number("rms_norm_eps", 1e-6),
        "tied": keys.flag("tie_word_embeddings", False),
    }
    keys.finish()
    return cls(**fields)


def read_sizes(keys: Keys, head_dim: int | None) -> dict[str, int]:
    d_model, num_heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    num_kv_heads = keys.whole("num_key_value_heads", num_heads)
    if keys.raw("head_dim", head_dim) is None and d_model % num_heads:
        keys.problem(f"hidden_size {d_model} is not a multiple of num_attention_heads {num_heads}")
    if num_heads % num_kv_heads:
        keys.problem(f"num_attention_heads {num_heads} is not a multiple of num_key_value_heads {num_kv_heads}")
    return {
        "vocab_size": keys.whole("vocab_size"),
        "d_model": d_model,
        "num_layers": keys.whole("num_hidden_layers"),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": keys.whole("head_dim", head_dim or max(d_model // num_heads, 1)),
        "d_ff": keys.whole("intermediate_size"),
    }
