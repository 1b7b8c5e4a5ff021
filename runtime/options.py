"""What a caller may ask of generation. Names and meanings are those of Hugging Face's GenerationConfig."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.option_checks import checked_values, problems_of
from edgeformer.runtime.option_files import values_of_file

# What an option displaces where it is changed and the other is not: both cannot hold.
DISPLACES = {
    "max_new_tokens": "max_length",
    "max_length": "max_new_tokens",
    "min_new_tokens": "min_length",
    "min_length": "min_new_tokens",
}
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")  # options that do_sample alone reads


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """Options of `generate` and `stream`. Every one of them changes the result or the time it takes, or is refused.

    `length_penalty` and `early_stopping` are of beam search alone: greedy search and sampling do not read them. What
    looks at the tokens so far looks at a language model's prompt as well; after an encoder, at the decoder's tokens,
    the first of which is the one that starts a text. Sequences may be given as lists; they are kept as tuples.

    Attributes:
        max_new_tokens: most tokens to generate, the end token among them; None for as many as the positions allow.
        max_length: the same, with a language model's prompt counted, or the token that starts a text; instead of
            max_new_tokens.
        min_new_tokens: no end token is taken before this many others.
        min_length: the same, counted as max_length is; instead of min_new_tokens.
        num_beams: hypotheses that a search keeps; 1 is greedy.
        num_return_sequences: n-best of a search, at most num_beams; or texts that are sampled for each input.
        length_penalty: a hypothesis' log-probability is divided by its number of tokens to this power.
        early_stopping: True ends a search at num_beams finished hypotheses; False ends it when no running hypothesis
            would score better at its present length; "never" when none could at any length that is left.
        do_sample: draw each token at random, as likely as the model holds it to be, instead of the likeliest.
        temperature: logits are divided by it before a token is drawn: below 1 for likelier tokens.
        top_k: draw from this many of the likeliest tokens; 0 for all of them.
        top_p: draw from the fewest likeliest tokens that together have this probability.
        min_p: draw from tokens that are at least this many times as likely as the likeliest.
        seed: where the draws begin: the same seed gives the same texts, whatever else is in the batch. Of one number
            each input makes a seed of its own (`sampling.input_seeds`); or give a sequence, one for each input, which
            then gets what it gets alone with that seed. None for a different one each time.
        repetition_penalty: logits of tokens that there are already are divided by it where they are positive, and
            multiplied where they are negative.
        no_repeat_ngram_size: no run of so many tokens comes twice; 0 for no such rule.
        bad_words_ids: runs of tokens that may not come.
        suppress_tokens: tokens that are never taken.
        begin_suppress_tokens: tokens that a text does not begin with.
        forced_bos_token_id: the token that follows the first one, such as the language to translate into.
        forced_eos_token_id: token or tokens, one of which is taken last where a text reaches its greatest length.
        eos_token_id: token or tokens, each of which ends a text; None for the model's own.
        renormalize_logits: a search makes probabilities sum to 1 again after the options above have changed them;
            greedy search and sampling, which only compare them, give the same either way.
        prompt_lookup_num_tokens: greedy search guesses so many tokens at most, those that followed the same ones in the
            prompt or the text, and computes them in one step; 0 for none. It changes no text, only how many steps it
            takes. Inputs are computed one by one then.
        stop_strings: text or texts; a text ends with the token that completes one of them, which stays in it.

    Raises:
        OptionError: values out of range, or options that contradict each other; all of them at once.
    """

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int = 0
    min_length: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | Sequence[int] | None = None
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_words_ids: Sequence[Sequence[int]] = ()
    suppress_tokens: Sequence[int] = ()
    begin_suppress_tokens: Sequence[int] = ()
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] | None = None
    eos_token_id: int | Sequence[int] | None = None
    renormalize_logits: bool = False
    prompt_lookup_num_tokens: int = 0
    stop_strings: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values, problems = checked_values(values)
        problems = problems or [*problems_of(values), *self.idle_options()]
        if problems:
            raise OptionError("; ".join(problems))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def idle_options(self) -> list[str]:
        """Options that were given and that nothing would read."""
        if self.do_sample:
            return []
        idle = [name for name in SAMPLING if getattr(self, name) != DEFAULTS[name]]
        given = ", ".join(f"{name}={getattr(self, name)!r}" for name in idle)
        return [f"{given} would change nothing: set do_sample as well"] if idle else []

    def changed(self, **changes: Any) -> GenerationConfig:
        """These options with some of them changed, and without those that the changes displace.

        A greatest length in new tokens displaces one in all tokens, and the reverse; the same of least lengths.
        Several beams turn sampling off, sampling several beams, and both turn off guesses; where sampling goes, so do
        its options.

        Raises:
            OptionError: as for new options; an unknown name.
        """
        if unknown := sorted(set(changes) - set(DEFAULTS)):
            raise OptionError(f"not supported: {', '.join(unknown)}; supported: {', '.join(sorted(DEFAULTS))}")
        displaced = {DISPLACES[name] for name in changes if name in DISPLACES}
        if changes.get("num_beams", 1) != 1:
            displaced |= {"do_sample", "prompt_lookup_num_tokens"}
        if changes.get("do_sample"):
            displaced |= {"num_beams", "prompt_lookup_num_tokens"}
        values = {name: getattr(self, name) for name in DEFAULTS}
        values |= {name: DEFAULTS[name] for name in displaced} | changes
        if not values["do_sample"]:
            values |= {name: DEFAULTS[name] for name in SAMPLING if name not in changes}
        return GenerationConfig(**values)

    @property
    def ends(self) -> tuple[int, ...]:
        """eos_token_id, as many as there are."""
        return tuple(cast("Sequence[int]", self.eos_token_id or ()))

    def within(self, positions: int) -> GenerationConfig:
        """These options, without a greatest length that is beyond so many positions: they end a text anyway."""
        beyond = {"max_new_tokens": positions, "max_length": positions + 1}  # the last token needs no position
        gone: dict[str, Any] = {name: None for name, most in beyond.items() if (getattr(self, name) or 0) > most}
        return dataclasses.replace(self, **gone)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GenerationConfig:
        """Options from the keys of a generation_config.json.

        Of keys that displace each other the file's meaning is Hugging Face's: max_new_tokens comes before max_length,
        and without do_sample nothing reads the options of sampling, so that they are dropped.

        Raises:
            OptionError: with every key that is not supported, so that none is ignored in silence.
        """
        return cls(**values_of_file(values, known=set(DEFAULTS), sampling=SAMPLING))


DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(GenerationConfig)}
