"""Mistral (Jiang et al. 2023, "Mistral 7B"): LLaMA with a sliding window."""

from __future__ import annotations

from edgeformer.models.configs.keys import Keys
from edgeformer.models.configs.llama import LlamaConfig, read_decoder
from edgeformer.models.configs.windows import one_window


class MistralConfig(LlamaConfig):
    __slots__ = ()

    @classmethod
    def from_keys(cls, keys: Keys) -> MistralConfig:
        """Mistral's configuration.

        Raises:
            ConfigError: with every key that is missing, out of range, or not understood.
        """
        keys.expect("attention_bias", False)
        return read_decoder(cls, keys, read_windows=one_window)
