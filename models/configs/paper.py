"""The paper's Transformer: every number that decides what it computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

from edgeformer.models.configs.keys import LIMITS, MOST_TABLE, Keys, is_number, is_positive, is_whole, shown, wrong_size
from edgeformer.runtime.errors import ConfigError

Activation = Literal["relu", "gelu", "silu"]
NormPlacement = Literal["post", "pre"]
Positions = Literal["sinusoidal", "learned"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """The encoder-decoder of Vaswani et al., "Attention Is All You Need" (2017), section 3.

    The defaults are the paper's choices: post-norm residuals, ReLU, sinusoidal positions, one embedding matrix shared
    by the encoder, the decoder and the vocabulary projection, embeddings scaled by sqrt(d_model).

    Raises:
        ConfigError: with every problem of the configuration at once.
    """

    vocab_size: int
    d_model: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_ff: int = 2048
    max_positions: int = 512
    activation: Activation = "relu"
    norm_placement: NormPlacement = "post"
    positions: Positions = "sinusoidal"
    scale_embeddings: bool = True
    dropout: float = 0.1
    norm_eps: float = 1e-5
    pad_token_id: int = 0
    bos_token_id: int = 1
    eos_token_id: int = 2

    def __post_init__(self) -> None:
        if problems := [*self._wrong_sizes(), *self._wrong_choices()]:
            raise ConfigError("the Transformer's configuration", problems)

    def _wrong_sizes(self) -> list[str]:
        sizes = "vocab_size d_model num_heads num_encoder_layers num_decoder_layers d_ff max_positions".split()
        found = {name: wrong_size(name, getattr(self, name)) for name in sizes}
        problems = [problem for problem in found.values() if problem is not None]
        wrong = {name for name, problem in found.items() if problem is not None}
        if not wrong & {"d_model", "num_heads"} and self.d_model % self.num_heads:
            problems.append(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
        if "d_model" not in wrong and self.positions == "sinusoidal" and self.d_model % 2:
            problems.append(f"d_model {self.d_model} is odd; sinusoidal positions come in pairs of sine and cosine")
        if not wrong and self.positions == "sinusoidal" and self.max_positions * self.d_model > MOST_TABLE:
            problems.append(
                f"max_positions {self.max_positions} times d_model {self.d_model} are more sinusoids than {MOST_TABLE}"
            )
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            value = getattr(self, name)
            if not is_whole(value) or value < 0 or ("vocab_size" not in wrong and value >= self.vocab_size):
                problems.append(f"{name} is {shown(value)}, outside the vocabulary of {self.vocab_size}")
        return problems

    def _wrong_choices(self) -> list[str]:
        choices = {"activation": Activation, "norm_placement": NormPlacement, "positions": Positions}
        problems = [
            f"{name} is {shown(value)}, expected one of {', '.join(get_args(allowed))}"
            for name, allowed in choices.items()
            if (value := getattr(self, name)) not in get_args(allowed)
        ]
        if not isinstance(self.scale_embeddings, bool):
            problems.append(f"scale_embeddings is {shown(self.scale_embeddings)}, expected true or false")
        if not is_number(self.dropout) or not 0 <= self.dropout < 1:
            problems.append(f"dropout is {shown(self.dropout)}, expected a number from 0 up to 1")
        if not is_positive(self.norm_eps):
            problems.append(f"norm_eps is {shown(self.norm_eps)}, expected a number above 0")
        return problems

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.d_model // self.num_heads

    @property
    def num_layers(self) -> int:
        """Layers of the decoder: those that keep a cache."""
        return self.num_decoder_layers

    @property
    def num_kv_heads(self) -> int:
        """Every head has keys and values of its own."""
        return self.num_heads

    @property
    def source_vocab_size(self) -> int:
        """Both sides share one vocabulary."""
        return self.vocab_size

    @property
    def max_source_positions(self) -> int:
        """Both sides share one table of positions."""
        return self.max_positions

    @property
    def start_token_id(self) -> int:
        """The decoder's first input."""
        return self.bos_token_id

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """What ends a text."""
        return (self.eos_token_id,)

    @classmethod
    def from_keys(cls, keys: Keys) -> TransformerConfig:
        """Build from a config.json.

        Raises:
            ConfigError: as `from_dict`.
        """
        return cls.from_dict(keys.values, subject=keys.subject)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], subject: str = "config.json") -> TransformerConfig:
        """Build from the keys of a config.json; a key that is not understood is an error, not ignored.

        Args:
            values: the keys and their values; `model_type` may be among them.
            subject: what an error calls them.

        Raises:
            ConfigError: with every key that is unknown or missing and every value out of range.
        """
        known = {field.name: field for field in dataclasses.fields(cls)}
        given = {key: value for key, value in values.items() if key != "model_type"}
        problems = [f"key {key!r} is not understood" for key in given if key not in known]
        missing = [name for name, field in known.items() if field.default is dataclasses.MISSING and name not in given]
        problems += [f"key {name!r} is missing" for name in missing]
        fitting = {key: value for key, value in given.items() if key in known}
        try:  # the missing keys, all of them sizes, are no reason to keep quiet about the values of the others
            config = cls(**{**{name: LIMITS[name] for name in missing}, **fitting})
        except ConfigError as error:
            raise ConfigError(subject, [*problems, *error.problems]) from None
        if problems:
            raise ConfigError(subject, problems)
        return config

    def to_dict(self) -> dict[str, Any]:
        """The keys of config.json, `model_type` first."""
        return {"model_type": "transformer", **dataclasses.asdict(self)}


# Table 3 of the paper. Its vocabulary was 37,000 shared byte pairs (section 5.1).
PRESETS: dict[str, dict[str, Any]] = {
    "base": {"d_model": 512, "num_heads": 8, "num_encoder_layers": 6, "num_decoder_layers": 6, "d_ff": 2048,
             "dropout": 0.1},
    "big": {"d_model": 1024, "num_heads": 16, "num_encoder_layers": 6, "num_decoder_layers": 6, "d_ff": 4096,
            "dropout": 0.3},
}  # fmt: skip


def preset(name: str, *, vocab_size: int = 37000, **changes: Any) -> TransformerConfig:
    """One of the paper's models, `base` or `big`, with the given fields changed.

    Raises:
        ConfigError: no such preset, or a change that does not fit.
    """
    if name not in PRESETS:
        raise ConfigError("presets", [f"there is no {name!r}; known: {', '.join(PRESETS)}"])
    values = {"vocab_size": vocab_size, **PRESETS[name], **changes}
    return TransformerConfig.from_dict(values, subject=f"preset {name}")
