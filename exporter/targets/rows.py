"""The table of targets."""

from __future__ import annotations

import dataclasses

from edgeformer.exporter.targets.capabilities import RTX, TENSORRT, capabilities

PORTABLE_SET = "portable"  # asked for as a compute capability: one engine for all of a row's that have the precision

NOT_RUN = "from the vendor's documentation, not run"
PLANS = ("fp16", "bf16", "fp32", "int8", "int4")
X86, ARM = "linux-x86_64", "linux-aarch64"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A capability row.

    Attributes:
        name: what `edgeformer optimize --target` takes.
        backend: what runs its artifacts: ort-cpu, ort-cuda or tensorrt.
        precisions: how weights may be stored, the first being the default.
        attention: forms that its graphs may have, the preferred first: `contrib` (ONNX Runtime's kernels), `native`
            (TensorRT's attention and cache layers), `plugin` (our own op), `primitive` (a pattern that compilers fuse).
        has_run: where this path has been run, and how that is known.
        module: the package that builds its engines, tensorrt or tensorrt_rtx; None where there are no engines.
        versions: of the module: from the first, and below the second; None where there are no engines.
        excluded: a range of versions within those that does not exist for this target.
        compute_capabilities: GPUs that its artifacts may be made for.
        platforms: operating systems and processors that it runs on, such as linux-x86_64.
        jetson: whether it is a Jetson, where memory is shared with the CPU.
        notes: where each claim comes from.
    """

    name: str
    backend: str
    precisions: tuple[str, ...]
    attention: tuple[str, ...]
    has_run: str
    module: str | None = None
    versions: tuple[str, str] | None = None
    excluded: tuple[str, str] | None = None
    compute_capabilities: tuple[str, ...] = ()
    platforms: tuple[str, ...] = (X86, ARM)
    jetson: bool = False
    notes: tuple[str, ...] = ()

    @property
    def features(self) -> frozenset[str]:
        """What the oldest version of its range can do; a builder asks `capabilities` for the installed one."""
        if self.module is None or self.versions is None:
            return frozenset()
        return capabilities(self.module, self.versions[0], jetson=self.jetson)


SERVER_GPUS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
ROWS = (
    Target("ort-cpu", "ort-cpu", ("fp32", "int8", "int8-rows"), ("contrib",), "ran in CI"),
    Target("ort-cuda", "ort-cuda", ("fp16", "fp32"), ("contrib",), NOT_RUN),
    Target("tensorrt-10.3", "tensorrt", PLANS, ("plugin", "primitive"), NOT_RUN, TENSORRT, ("10.3", "10.13"), None,
           ("7.5", "8.0", "8.6", "8.9", "9.0")),
    Target("tensorrt-10.13", "tensorrt", PLANS, ("plugin", "primitive"), NOT_RUN, TENSORRT, ("10.13", "10.16"), None,
           SERVER_GPUS),
    Target("tensorrt-10.16", "tensorrt", PLANS, ("native", "plugin", "primitive"), NOT_RUN, TENSORRT,
           ("10.16", "11.0"), None, SERVER_GPUS),
    Target("tensorrt-11", "tensorrt", PLANS, ("native", "plugin", "primitive"), NOT_RUN, TENSORRT, ("11.0", "12.0"),
           None, SERVER_GPUS),
    Target("tensorrt-rtx", "tensorrt", ("fp16", "bf16", "int8", "int4"), ("native",), "engines built in CI, not run",
           RTX, ("1.7", "2.0"), None, ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")),
    Target("jetson-orin-jp6", "tensorrt", PLANS, ("plugin", "primitive"), NOT_RUN, TENSORRT, ("10.3", "10.4"), None,
           ("8.7",), (ARM,), True),
    Target("jetson-orin-jp7.2", "tensorrt", PLANS, ("native", "plugin", "primitive"), NOT_RUN, TENSORRT,
           ("10.16", "12.0"), ("11.0", "11.4.1"), ("8.7",), (ARM,), True),
    Target("jetson-thor-jp7.1", "tensorrt", PLANS, ("plugin", "primitive"), NOT_RUN, TENSORRT, ("10.13", "10.14"),
           None, ("11.0",), (ARM,), True),
    Target("jetson-thor-jp7.2", "tensorrt", PLANS, ("native", "plugin", "primitive"), NOT_RUN, TENSORRT,
           ("10.16", "12.0"), ("11.0", "11.4.1"), ("11.0",), (ARM,), True),
)  # fmt: skip
TARGETS = {target.name: target for target in ROWS}
