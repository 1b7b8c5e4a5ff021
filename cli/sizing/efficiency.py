"""How near to a bound of speed programs come, as it was measured: none reaches a peak."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of the speed at which a step would go if reading and computing, at their peaks, followed each other.

    Attributes:
        low, high: the range.
        source: who measured it, and on what.
    """

    low: float
    high: float
    source: str


# One after the other, since that described the CPU's measurements in docs/speed.md best: 0.62 to 0.81 over three
# precisions and batches of 1 and 8, where shares of the longer of the two went from 0.24 to 0.76.
EFFICIENCIES = {
    "ort-cpu": Efficiency(0.62, 0.81, "measured with this program on two cores (docs/sizing.md)"),
    "tensorrt": Efficiency(
        0.42, 0.69, "of others (gpt-fast's README: LLaMA-2-7B on an A100, 4 to 16 bits); this program has not run there"
    ),
}


def efficiency_of(backend: str) -> Efficiency:
    """What is to be expected of a backend; nobody measured ort-cuda, which is taken to do as TensorRT does."""
    return EFFICIENCIES.get(backend, EFFICIENCIES["tensorrt"])
