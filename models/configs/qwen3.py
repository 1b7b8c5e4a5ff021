"""Qwen3 (Yang et al. 2025): LLaMA with normalized queries and keys, heads of any width, and windows in some layers."""

from __future__ import annotations

from edgeformer.models.configs.keys import Keys
from edgeformer.models.configs.llama import LlamaConfig, read_decoder
from edgeformer.models.configs.windows import windows_by_layer


class Qwen3Config(LlamaConfig):
    __slots__ = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> Qwen3Config:
        """Qwen3's configuration.

        Raises:
            ConfigError: with every key that is missing, out of range, or not understood.
        """
        bias = keys.flag("attention_bias", False)
        return read_decoder(
            cls,
            keys,
            head_dim=128,
            read_windows=windows_by_layer,
            query_key_value_bias=bias,
            output_bias=bias,
            query_key_norm=True,
        )
