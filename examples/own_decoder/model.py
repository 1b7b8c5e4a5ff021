"""A language model of one's own: what `edgeformer export` needs of a module, and nothing else.

Attention and feed-forward read the same normalized input side by side, as in PaLM (Chowdhery et al. 2022), which no
family that edgeformer knows does; heads share keys and values in groups, and positions turn queries and keys. The parts
are edgeformer's; the module is yours. `edgeformer.models.protocols` says what it must offer.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from edgeformer.models.attention import KeyValue, attention, causal_mask
from edgeformer.models.cache import write_cache
from edgeformer.models.configs.rope import Rope, plain_frequencies
from edgeformer.models.feed_forward import GatedFeedForward
from edgeformer.models.rotary import Rotation, rotate, rotation
from edgeformer.models.steps import positions_after, taken_at

TRAINED = Path("build")  # where train_decoder.py leaves the weights, from this folder


@dataclasses.dataclass(frozen=True)
class Config:
    """The numbers and tokens that `edgeformer.models.protocols.DecoderConfig` asks for, and this module's own."""

    vocab_size: int
    num_layers: int = 3
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 32
    max_positions: int = 256
    pad_token_id: int = 0
    start_token_id: int = 0
    eos_token_ids: tuple[int, ...] = (0,)
    d_model: int = 192
    d_ff: int = 384

    @property
    def rope(self) -> Rope:
        return Rope(plain_frequencies(self.head_dim))


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.norm = nn.RMSNorm(config.d_model)
        self.query = nn.Linear(config.d_model, config.num_heads * config.head_dim, bias=False)
        self.key = nn.Linear(config.d_model, config.num_kv_heads * config.head_dim, bias=False)
        self.value = nn.Linear(config.d_model, config.num_kv_heads * config.head_dim, bias=False)
        self.output = nn.Linear(config.num_heads * config.head_dim, config.d_model, bias=False)
        self.feed_forward = GatedFeedForward(config.d_model, config.d_ff, "silu")

    def heads(self, x: Tensor) -> Tensor:
        split: Tensor = x.unflatten(-1, (-1, self.config.head_dim))
        return split.transpose(1, 2)  # (batch, heads, q_len, head_dim)

    def forward(
        self, x: Tensor, turned: Rotation, mask: Tensor, cache_lengths: Tensor, past: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        normalized = self.norm(x)
        query = rotate(self.heads(self.query(normalized)), turned, self.config.rope)
        key = rotate(self.heads(self.key(normalized)), turned, self.config.rope)
        value = self.heads(self.value(normalized))
        if past is not None:
            key, value = write_cache(past[0], key, cache_lengths), write_cache(past[1], value, cache_lengths)
        attended = self.output(attention(query, key, value, mask).transpose(1, 2).flatten(2))
        return x + attended + self.feed_forward(normalized), (key, value)


class ParallelDecoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers: Any = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)

    def read(
        self, input_ids: Tensor, cache_lengths: Tensor, past_key_values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Hidden states of new tokens, and the keys and values: of the caches, or of these tokens alone."""
        q_len = input_ids.shape[1]
        positions = positions_after(cache_lengths, q_len)
        mask = causal_mask(positions, past_key_values[0].shape[2] if past_key_values else q_len)
        turned = rotation(self.config.rope, positions, self.embedding.weight.dtype)
        x, present = self.embedding(input_ids), list[Tensor]()
        for i, layer in enumerate(self.layers):
            past = (past_key_values[2 * i], past_key_values[2 * i + 1]) if past_key_values else None
            x, key_value = layer(x, turned, mask, cache_lengths, past)
            present += key_value
        return self.norm(x), present

    def step(
        self, input_ids: Tensor, cache_lengths: Tensor, logits_at: Tensor, past_key_values: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """What the runtime calls: new tokens after those in the caches."""
        x, present = self.read(input_ids, cache_lengths, past_key_values)
        return F.linear(taken_at(x, logits_at), self.embedding.weight), present

    def forward(self, input_ids: Tensor) -> Tensor:
        """What training and verification call: the whole text at once."""
        x, _ = self.read(input_ids, input_ids.new_zeros(input_ids.shape[0]), ())
        return F.linear(x, self.embedding.weight)


def save(model: ParallelDecoder, folder: Path) -> None:
    """Write the weights and sizes of a model into an existing folder."""
    save_file(model.state_dict(), folder / "model.safetensors")
    (folder / "sizes.json").write_text(json.dumps(dataclasses.asdict(model.config)), encoding="utf-8")


def trained(folder: Path = TRAINED) -> ParallelDecoder:
    """The model that train_decoder.py left: the factory that `edgeformer export model:trained` calls."""
    sizes = json.loads((folder / "sizes.json").read_text(encoding="utf-8"))
    model = ParallelDecoder(Config(**{**sizes, "eos_token_ids": tuple(sizes["eos_token_ids"])}))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval()
