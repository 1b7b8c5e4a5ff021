"""What the rows of the table take: precisions by GPU, widths of heads by form of attention, versions."""

from __future__ import annotations

import dataclasses

from edgeformer.exporter.targets.capabilities import RTX, TENSORRT
from edgeformer.exporter.targets.rows import AHEAD_OF_TIME, PLUGIN, TARGETS, Target
from edgeformer.runtime.backends import older
from edgeformer.runtime.errors import TargetError

# The least compute capability of each precision, by module. bf16: Turing has none. RTX: its support matrix; its builder
# refuses int4 on 7.5 as well (run), and products in fp32 gave zeros there (reported in pytorch/TensorRT #4643).
LEAST_GPU = {
    TENSORRT: {"bf16": "8.0"},
    RTX: {"bf16": "8.0", "fp32": "8.0", "int8": "8.0", "int4": "8.0"},
}
UNFUSED_PRECISIONS = ("fp32",)  # no form of attention is fused in them: run with RTX 1.7.1, documented for TensorRT


@dataclasses.dataclass(frozen=True, slots=True)
class HeadSizes:
    """Widths of heads that a form of attention takes: from least to most, in steps."""

    least: int
    most: int
    step: int

    def __contains__(self, head_dim: int) -> bool:
        return self.least <= head_dim <= self.most and head_dim % self.step == 0

    def __str__(self) -> str:
        return f"{self.least} to {self.most}, multiples of {self.step}"


HEAD_SIZES = {
    "contrib": HeadSizes(8, 256, 8),  # ONNX Runtime's GroupQueryAttention
    "native": HeadSizes(16, 256, 8),  # run with RTX 1.7.1, every GPU of its row, over a cache, a source and in encoders
    PLUGIN: HeadSizes(16, 128, 8),  # the sizes that our kernels are checked in
    AHEAD_OF_TIME: HeadSizes(16, 128, 8),  # the same kernels
    "primitive": HeadSizes(16, 256, 8),  # TensorRT's documentation
}


def with_precision(target: Target, precision: str) -> tuple[str, ...]:
    """The row's compute capabilities that have a precision."""
    least = LEAST_GPU.get(target.module or "", {}).get(precision)
    return tuple(gpu for gpu in target.compute_capabilities if least is None or not older(gpu, least))


def check_version(target: Target, version: str) -> None:
    """Refuse a version of the row's module that is not the row's.

    Args:
        version: of the module that is installed, such as 10.13.3.9.

    Raises:
        TargetError: naming the version, the row's range, and the rows that this version is of.
    """
    if target.versions is None or in_range(target, version):
        return
    least, below = target.versions
    alike = [row for row in TARGETS.values() if (row.module, row.jetson) == (target.module, target.jetson)]
    others = [row.name for row in alike if in_range(row, version)]
    there = f", without {target.excluded[0]} to below {target.excluded[1]}" if target.excluded else ""
    raise TargetError(
        f"target {target.name} is of {target.module} {least} to below {below}{there}; {version} is installed here: "
        f"{'take the target ' + ' or '.join(others) if others else 'install a version of the range'}"
    )


def in_range(target: Target, version: str) -> bool:
    def within(limits: tuple[str, str]) -> bool:
        return not older(version, limits[0]) and older(version, limits[1])

    if target.versions is None or not within(target.versions):
        return False
    return target.excluded is None or not within(target.excluded)
