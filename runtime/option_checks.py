"""What each generation option must be, alone and beside the others."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """What a value must be: `read` gives it as it is kept, or raises ValueError or TypeError where it is none."""

    expected: str
    read: Callable[[Any], Any]


def whole(least: int) -> Check:
    def read(value: Any) -> int:
        number = whole_number(value)
        if number < least:
            raise ValueError
        return number

    return Check(f"a whole number of at least {least}", read)


def number(expected: str, allowed: Callable[[float], bool]) -> Check:
    def read(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not allowed(value):
            raise ValueError
        return value

    return Check(expected, read)


def optional(check: Check) -> Check:
    return Check(f"{check.expected}, or None", lambda value: None if value is None else check.read(value))


def whole_number(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def token(value: Any) -> int:
    number = whole_number(value)
    if number < 0:
        raise ValueError
    return number


def tokens(value: Any) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)):
        raise TypeError
    return tuple(token(one) for one in value)


def some_tokens(value: Any) -> tuple[int, ...]:
    """One or several."""
    try:
        return (token(value),)
    except TypeError:
        several = tokens(value)
    if not several:
        raise ValueError
    return several


def words(value: Any) -> tuple[tuple[int, ...], ...]:
    several = tuple(tokens(word) for word in value)
    if not all(several):
        raise ValueError
    return several


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def stopping(value: Any) -> Any:
    return value if value == "never" else yes_or_no(value)  # 1 == True, and yet is none of them


def texts(value: Any) -> tuple[str, ...]:
    several = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(text, str) and text for text in several):
        raise ValueError
    return several


def seed(value: Any) -> int | tuple[int, ...]:
    try:
        return token(value)
    except TypeError:
        return some_tokens(value)


ONE_OR_MORE = "a token id or a list of at least one"
CHECKS: dict[str, Check] = {
    "max_new_tokens": optional(whole(1)),
    "max_length": optional(whole(1)),
    "min_new_tokens": whole(0),
    "min_length": whole(0),
    "num_beams": whole(1),
    "num_return_sequences": whole(1),
    "length_penalty": number("a number between -10 and 10", lambda value: abs(value) < 10),
    "early_stopping": Check("True, False or 'never'", stopping),
    "do_sample": Check("True or False", yes_or_no),
    "temperature": number("a number above 0; for the likeliest tokens, do_sample=False", lambda v: 0 < v < math.inf),
    "top_k": whole(0),
    "top_p": number("a number above 0 and at most 1", lambda value: 0 < value <= 1),
    "min_p": number("a number from 0 to 1", lambda value: 0 <= value <= 1),
    "seed": optional(Check("a whole number of at least 0, or one for each input", seed)),
    "repetition_penalty": number("a number from 0.01 to 100", lambda value: 0.01 <= value <= 100),
    "no_repeat_ngram_size": whole(0),
    "bad_words_ids": Check("lists of token ids, none of them empty", words),
    "suppress_tokens": Check("a list of token ids", tokens),
    "begin_suppress_tokens": Check("a list of token ids", tokens),
    "forced_bos_token_id": optional(Check("a token id", token)),
    "forced_eos_token_id": optional(Check(ONE_OR_MORE, some_tokens)),
    "eos_token_id": optional(Check(ONE_OR_MORE, some_tokens)),
    "stop_strings": Check("a text or a list of texts, none of them empty", texts),
    "renormalize_logits": Check("True or False", yes_or_no),
    "prompt_lookup_num_tokens": whole(0),
}


def checked_values(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values as they are kept, and what is wrong with each that is none."""
    kept, problems = {}, []
    for name, value in values.items():
        try:
            kept[name] = CHECKS[name].read(value)
        except (TypeError, ValueError):
            problems.append(f"{name} is {value!r:.80}, expected {CHECKS[name].expected}")
    return kept, problems


def problems_of(values: Mapping[str, Any]) -> Iterator[str]:
    """Options that contradict each other."""
    yield from problems_of_lengths(values)
    beams, several = values["num_beams"], values["num_return_sequences"]
    if values["do_sample"] and beams > 1:
        yield f"do_sample draws texts one by one, and num_beams is {beams}: set it to 1, or do_sample to False"
    if not values["do_sample"] and several > beams:
        yield (
            f"num_return_sequences is {several}, but a search with num_beams {beams} ends with {beams}: "
            "raise num_beams, or set do_sample"
        )
    if (guessed := values["prompt_lookup_num_tokens"]) and (values["do_sample"] or beams > 1):
        other = "do_sample is True" if values["do_sample"] else f"num_beams is {beams}"
        yield f"prompt_lookup_num_tokens is {guessed}, but only greedy search guesses tokens, and {other}"
    if values["stop_strings"] and (beams > 1 or values["prompt_lookup_num_tokens"]):
        other = f"num_beams is {beams}" if beams > 1 else "prompt_lookup_num_tokens is set"
        yield (
            f"stop_strings is {list(values['stop_strings'])!r:.80}, and only greedy search and sampling look for them, "
            f"but {other}: leave one of both out"
        )
    for name in ("forced_bos_token_id", "forced_eos_token_id"):
        forced = values[name]
        forced = forced if isinstance(forced, Sequence) else () if forced is None else (forced,)
        if forced and set(forced) <= set(values["suppress_tokens"]):
            yield f"{name} is {values[name]}, which suppress_tokens forbids"


def problems_of_lengths(values: Mapping[str, Any]) -> Iterator[str]:
    for least, most in (("min_new_tokens", "max_new_tokens"), ("min_length", "max_length")):
        if values[most] is not None and values[least] > values[most]:
            yield f"{least} {values[least]} is above {most} {values[most]}"
    if values["max_length"] is not None and values["max_new_tokens"] is not None:
        yield (
            f"max_length {values['max_length']} and max_new_tokens {values['max_new_tokens']} both say how long a "
            "text may be: give one of them"
        )
    if values["min_length"] and values["min_new_tokens"]:
        yield (
            f"min_length {values['min_length']} and min_new_tokens {values['min_new_tokens']} both say how long a "
            "text must be: give one of them"
        )
