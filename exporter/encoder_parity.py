"""Whether an encoder's artifact gives what PyTorch gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeformer.exporter.parity import Check, largest
from edgeformer.runtime import EncoderModel
from edgeformer.runtime.backends import Floats
from edgeformer.runtime.encoder_records import EncoderSample
from edgeformer.runtime.encoder_text import EncodedInput

# Largest root mean square of the differences in a sample, as a share of that of all the values that PyTorch gave. A row
# beside others may differ from itself alone by as much: where activations are rounded, the last digit of a sum decides
# which way, and layers carry that on.
TOLERANCES = {"fp32": 1e-4, "fp16": 0.02, "bf16": 0.1, "int8": 0.2, "int8-rows": 0.2, "int4": 0.6, "auto": 0.6}


def check_encoder(model: EncoderModel, samples: Sequence[EncoderSample]) -> list[Check]:
    """Compare an artifact with what PyTorch gave, and with itself one row at a time."""
    tolerance = TOLERANCES[model.artifact.precision]
    together = sampled(model, samples)
    alone = [sampled(model, [sample])[0] for sample in samples]
    expected = [np.array(sample.values, np.float32) for sample in samples]
    scale = root_mean_square(np.concatenate([values.ravel() for values in expected]))
    worst = largest(root_mean_square(a - b) / scale for a, b in zip(alone, expected, strict=True))
    of_rows = largest(root_mean_square(a - b) / scale for a, b in zip(alone, together, strict=True))
    what = f"{model.record.head.replace('-', ' ').removesuffix('s')}s"
    return [
        Check(f"{what} equal PyTorch's", worst <= tolerance, f"largest relative difference {worst:.1e}"),
        Check("a ragged batch equals its rows", of_rows <= tolerance, f"largest relative difference {of_rows:.1e}"),
    ]


def sampled(model: EncoderModel, samples: Sequence[EncoderSample]) -> list[Floats]:
    """What an artifact gives for samples, the numbers that they record alone; all in one batch."""
    rows = [EncodedInput(s.source_ids, s.token_type_ids or (0,) * len(s.source_ids)) for s in samples]
    found = model.run_together(rows, model.record.output, [sample.positions or (0,) for sample in samples])
    at_positions = model.record.head == "masked-tokens"
    return [picked(sample, values, at_positions) for sample, values in zip(samples, found, strict=True)]


def picked(sample: EncoderSample, values: Floats, at_positions: bool) -> Floats:
    rows = values[list(sample.positions)] if sample.positions and not at_positions else np.atleast_2d(values)
    return rows[:, list(sample.columns)] if sample.columns else rows


def root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
