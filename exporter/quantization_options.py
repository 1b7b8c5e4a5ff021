"""What can be asked of weights in few bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from edgeformer.runtime.errors import OptionError

BLOCK_SIZES = (32, 64, 128)
IN_BLOCKS = ("int8", "int4", "auto")  # precisions whose weights share scales in blocks
MOST_DIVERGENCE = 0.002  # nats a token that `auto` may lose by the products it stores in 4 bits
MOST_DIFFERENCE = 0.01  # of an encoder's output, squared, as a share of it: a cosine of about 0.995


@dataclasses.dataclass(frozen=True, slots=True)
class QuantizationOptions:
    """What `edgeformer optimize` was asked for; None is a default.

    Attributes:
        block_size: weights that share a scale: 32, 64 or 128; the largest that divides where it is None.
        asymmetric: give each block a zero point of its own.
        calibration: UTF-8 file of texts, one a line, as the model will meet them: rounding then makes up for its errors
            on them.
        most_divergence: of `auto`, Kullback-Leibler divergence from fp32 in nats a token, summed over the products that
            are stored in 4 bits; of an encoder, the squared difference of its output as a share of it.
        average_bits: of `auto`, bits a weight instead of a divergence: as little is lost as these allow.
    """

    block_size: int | None = None
    asymmetric: bool = False
    calibration: Path | None = None
    most_divergence: float | None = None
    average_bits: float | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The options that were given, as the command line spells them."""
        fields = dataclasses.fields(self)
        return tuple(f"--{f.name.replace('_', '-')}" for f in fields if getattr(self, f.name) != f.default)


def check_quantization(options: QuantizationOptions, target: str, precision: str) -> None:
    """Refuse options that make no sense, before any work.

    Raises:
        OptionError: with every problem.
    """
    if problems := list(wrong(options, target, precision)):
        raise OptionError("; ".join(problems))


def wrong(options: QuantizationOptions, target: str, precision: str) -> Iterator[str]:
    if options.given and (target != "ort-cpu" or precision not in IN_BLOCKS):
        yield (
            f"{', '.join(options.given)} is for target ort-cpu and precision {', '.join(IN_BLOCKS)}, "
            f"not for {target} and {precision}: leave it out"
        )
        return
    if options.block_size is not None and options.block_size not in BLOCK_SIZES:
        yield f"--block-size is {options.block_size}, expected one of {', '.join(map(str, BLOCK_SIZES))}"
    if precision != "auto" and (options.most_divergence is not None or options.average_bits is not None):
        yield "--most-divergence and --average-bits are budgets of precision auto: leave them out"
    if options.most_divergence is not None and options.average_bits is not None:
        yield "--most-divergence and --average-bits are two budgets: give one"
    if options.most_divergence is not None and not options.most_divergence > 0:
        yield f"--most-divergence is {options.most_divergence}, expected a number above 0"
    if options.average_bits is not None and not 4 <= options.average_bits <= 8:
        yield f"--average-bits is {options.average_bits}, expected 4 to 8"
