"""Rotary positions: how fast each pair of a head's numbers turns (Su et al. 2021, "RoFormer").

Most methods change these frequencies, so that a model reads longer texts than it was first trained on. They are
computed in double precision. A method whose frequencies depend on the length of the whole text, which no cache of
turned keys can follow, is taken for texts of the lengths that leave them alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from edgeformer.models.configs.keys import Keys, is_positive, shown
from edgeformer.runtime.errors import ConfigError

THETA = 10000.0  # the paper's, and what Hugging Face's configurations mean where they name none
Frequencies = tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Rope:
    """The rotation of a head's numbers, in pairs.

    Attributes:
        frequencies: radians per position, one for each pair.
        scale: factor of all sines and cosines.
        interleaved: whether a pair are neighbours (0, 1), (2, 3), ... instead of (0, head_dim / 2), ...
        longest: texts longer than this would be rotated in another way; None where there is no such length.
    """

    frequencies: Frequencies
    scale: float = 1.0
    interleaved: bool = False
    longest: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RotaryHead:
    """What every method knows: the unscaled frequencies of a head, and the length that the configuration claims."""

    head_dim: int
    theta: float
    max_positions: int

    @property
    def frequencies(self) -> Frequencies:
        return plain_frequencies(self.head_dim, self.theta)


def plain_frequencies(head_dim: int, theta: float = THETA) -> Frequencies:
    """theta^(-2i / head_dim) for each pair i."""
    return tuple(theta ** (-i / head_dim) for i in range(0, head_dim, 2))


def default(head: RotaryHead, keys: Keys) -> Rope:
    return Rope(head.frequencies)


def linear(head: RotaryHead, keys: Keys) -> Rope:
    """Positions closer together (Chen et al. 2023, "Position Interpolation")."""
    factor = keys.number("factor")
    return Rope(tuple(frequency / factor for frequency in head.frequencies))


def dynamic(head: RotaryHead, keys: Keys) -> Rope:
    """A theta that grows with the text, once that is longer than the training's."""
    keys.number("factor")
    return Rope(head.frequencies, longest=head.max_positions)


def llama3(head: RotaryHead, keys: Keys) -> Rope:
    """Slow pairs slowed down, fast ones left alone (Llama 3.1)."""
    factor, low, high = (keys.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = keys.whole("original_max_position_embeddings", head.max_positions)
    if low >= high:
        if not keys.problems:
            keys.problem(f"low_freq_factor is {low:g}, expected less than high_freq_factor, which is {high:g}")
        return default(head, keys)

    def scaled(frequency: float) -> float:
        turns = original * frequency / (2 * math.pi)  # in a text of the original length
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        return frequency * (kept + (1 - kept) / factor)

    return Rope(tuple(map(scaled, head.frequencies)))


def yarn(head: RotaryHead, keys: Keys) -> Rope:
    """As llama3, by a ramp over the pairs, and with larger scores (Peng et al. 2023, "YaRN")."""
    original = keys.whole("original_max_position_embeddings", head.max_positions)
    factor = keys.number("factor", head.max_positions / original)
    fast, slow = keys.number("beta_fast", 32.0), keys.number("beta_slow", 1.0)

    def pair_that_turns(times: float) -> float:
        """The pair, as a fraction, that turns so often in a text of the original length."""
        return head.head_dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(head.theta))

    first, last = pair_that_turns(fast), pair_that_turns(slow)
    if keys.flag("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head.head_dim - 1)
    width = last - first or 0.001

    def scaled(pair: int, frequency: float) -> float:
        slowed = min(max((pair - first) / width, 0.0), 1.0)
        return frequency * (1 - slowed + slowed / factor)

    return Rope(tuple(scaled(*item) for item in enumerate(head.frequencies)), yarn_scale(factor, keys))


def yarn_scale(factor: float, keys: Keys) -> float:
    def grown(times: float) -> float:
        return 0.1 * times * math.log(factor) + 1 if factor > 1 else 1.0

    names = ("attention_factor", "mscale", "mscale_all_dim")
    given, numerator, denominator = (keys.number(name) if keys.raw(name) is not None else None for name in names)
    if given is not None:
        return given
    return grown(numerator) / grown(denominator) if numerator and denominator else grown(1)


def longrope(head: RotaryHead, keys: Keys) -> Rope:
    """A divisor for each pair, of two sets: one for long texts (Ding et al. 2024, "LongRoPE"), which is not used."""
    original = keys.whole("original_max_position_embeddings", head.max_positions, least=2)
    factor = keys.number("factor", head.max_positions / original)
    scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    scale = keys.number("attention_factor", scale)
    short, _ = (divisors(name, head.head_dim // 2, keys) for name in ("short_factor", "long_factor"))
    frequencies = tuple(frequency / divisor for frequency, divisor in zip(head.frequencies, short, strict=True))
    return Rope(frequencies, scale, longest=original)


def divisors(name: str, pairs: int, keys: Keys) -> list[float]:
    values = keys.raw(name)
    if isinstance(values, list) and len(values) == pairs and all(map(is_positive, values)):
        return [float(value) for value in values]
    keys.problem(f"{name} is {shown(values)}, expected {pairs} numbers above 0")
    return [1.0] * pairs


METHODS: dict[str, Callable[[RotaryHead, Keys], Rope]] = {
    "default": default,
    "linear": linear,
    "dynamic": dynamic,
    "yarn": yarn,
    "longrope": longrope,
    "llama3": llama3,
}


def read_rope(keys: Keys, head_dim: int, max_positions: int) -> Rope:
    """The rotation that a configuration asks for, in `rope_parameters` or in the older `rope_theta` and `rope_scaling`.

    What is wrong is collected in `keys`.
    """
    inner = Keys(rope_values(keys))
    theta = inner.number("rope_theta", THETA)
    if theta <= 1:
        if not inner.problems:
            inner.problem(f"rope_theta is {theta:g}, expected a number above 1")
        theta = THETA
    if head_dim % 2:
        inner.problem(f"head_dim is {head_dim}, expected an even number: its numbers turn in pairs")
    method = inner.choice("rope_type", METHODS, "default")
    inner.expect("partial_rotary_factor", 1.0, 1)
    rope = method(RotaryHead(head_dim + head_dim % 2, theta, max_positions), inner)
    try:
        inner.finish()
    except ConfigError as error:
        for problem in error.problems:
            keys.problem(f"rotary positions: {problem}")
    return dataclasses.replace(rope, interleaved=keys.flag("rotary_interleaved", False))


def rope_values(keys: Keys) -> dict[str, object]:
    """All that a configuration says of rotary positions, in the names of `rope_parameters`."""
    values: dict[str, object] = {}

    def add(name: str, value: object, place: str) -> None:
        name = "rope_type" if name == "type" else name
        if value is not None and values.setdefault(name, value) != value:
            keys.problem(f"rotary positions: {name} is {shown(values[name])}, and in {place} {shown(value)}")

    for place in ("rope_parameters", "rope_scaling"):
        given = keys.raw(place, {})
        if not isinstance(given, dict):
            keys.problem(f"{place} is {shown(given)}, expected a table of names and values")
            continue
        for name, value in given.items():
            add(name, value, place)
    for name in ("rope_theta", "original_max_position_embeddings", "partial_rotary_factor"):
        add(name, keys.raw(name), keys.subject)
    return values
