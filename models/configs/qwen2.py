"""Qwen2 (Yang et al. 2024): LLaMA with biases of queries, keys and values, and sliding windows in some layers."""

from __future__ import annotations

from edgeformer.models.configs.keys import Keys
from edgeformer.models.configs.llama import LlamaConfig, read_decoder
from edgeformer.models.configs.windows import windows_by_layer


class Qwen2Config(LlamaConfig):
    __slots__ = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> Qwen2Config:
        """Qwen2's configuration; Qwen2.5's as well.

        Raises:
            ConfigError: with every key that is missing, out of range, or not understood.
        """
        keys.expect("attention_bias", True)
        return read_decoder(cls, keys, read_windows=windows_by_layer, query_key_value_bias=True)
