"""What a caller may ask of generation. Names and meanings are those of Hugging Face's GenerationConfig."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from edgeformer.runtime.errors import OptionError

# Keys of generation_config.json that change nothing here: token ids, which the bundle holds, and notes.
IGNORED_KEYS = frozenset(
    (
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "decoder_start_token_id",
        "transformers_version",
        "_from_model_config",
    )
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """Options of `generate` and `stream`. Every one of them changes the result, or is refused.

    `length_penalty` and `early_stopping` are of beam search alone: greedy search does not read them.

    Attributes:
        max_new_tokens: most tokens to generate, the end token among them; None for as many as the positions allow.
        min_new_tokens: the end token is not taken before this many others.
        num_beams: hypotheses that a search keeps; 1 is greedy.
        num_return_sequences: n-best, at most num_beams.
        length_penalty: a hypothesis' log-probability is divided by its number of tokens to this power.
        early_stopping: True ends a search at num_beams finished hypotheses; False ends it when no running hypothesis
            would score better at its present length; "never" when none could at any length that is left.

    Raises:
        OptionError: a value out of range, or options that contradict each other.
    """

    max_new_tokens: int | None = None
    min_new_tokens: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None:
            self._whole("max_new_tokens", least=1)
        self._whole("min_new_tokens", least=0)
        self._whole("num_beams", least=1)
        self._whole("num_return_sequences", least=1)
        if self.num_return_sequences > self.num_beams:
            raise OptionError(
                f"num_return_sequences is {self.num_return_sequences}, but a search of {self.num_beams} beams "
                f"ends with {self.num_beams}: raise num_beams"
            )
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise OptionError(f"min_new_tokens {self.min_new_tokens} is above max_new_tokens {self.max_new_tokens}")
        if isinstance(self.length_penalty, bool) or not isinstance(self.length_penalty, (int, float)):
            raise OptionError(f"length_penalty is {self.length_penalty!r}, expected a number")
        if not abs(self.length_penalty) < 100:
            raise OptionError(f"length_penalty is {self.length_penalty}, expected a number between -100 and 100")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":  # 1 == True
            raise OptionError(f"early_stopping is {self.early_stopping!r}, expected True, False or 'never'")

    def _whole(self, name: str, *, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise OptionError(f"{name} is {value!r}, expected a whole number of at least {least}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GenerationConfig:
        """Options from the keys of a generation_config.json.

        Raises:
            OptionError: with every key that is not supported, so that none is ignored in silence.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        given = {key: value for key, value in values.items() if key not in IGNORED_KEYS and value is not None}
        if unknown := [f"{key}={value!r}" for key, value in given.items() if key not in known]:
            raise OptionError(f"not supported: {', '.join(unknown)}; supported: {', '.join(sorted(known))}")
        return cls(**given)
