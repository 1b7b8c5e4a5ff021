"""The table of targets."""

from __future__ import annotations

import dataclasses

from edgeformer.exporter.targets.capabilities import RTX, TENSORRT, capabilities

RAN, BUILT, DOCUMENTED = "ran in CI", "engines built in CI, not run", "from the vendor's documentation, not run"
CHECKED_ON_CPU = "graphs checked in CI on the CPU, not run on a GPU"
PLANS = ("fp16", "bf16", "fp32", "int8", "int4")
PLUGIN, AHEAD_OF_TIME = "plugin", "plugin-aot"  # our own attention: its kernels beside the plans, or in them
WITHOUT_LAYERS = (PLUGIN, "primitive")
WITHOUT_LAYERS_AOT = (PLUGIN, AHEAD_OF_TIME, "primitive")
WITH_LAYERS = ("native", *WITHOUT_LAYERS_AOT)
X86, ARM = "linux-x86_64", "linux-aarch64"


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A capability row.

    Attributes:
        name: what `edgeformer optimize --target` takes.
        backend: what runs its artifacts: ort-cpu, ort-cuda or tensorrt.
        precisions: how weights may be stored, the first being the default.
        attention: forms that its graphs may have, the preferred first: `contrib` (ONNX Runtime's kernels), `native`
            (TensorRT's attention and cache layers), `plugin` (our own op), `plugin-aot` (the same, its kernels in the
            engine; from a version on that a row's oldest may be before), `primitive` (a pattern that compilers fuse).
        has_run: where this path has been run, and how that is known.
        module: the package that builds its engines, tensorrt or tensorrt_rtx; None where there are no engines.
        versions: of the module: from the first, and below the second; None where there are no engines.
        excluded: versions within those, from the first and below the second, that do not exist for this target.
        compute_capabilities: GPUs that its artifacts may be made for, such as 8.9.
        portable: those of them that one engine can serve together.
        platforms: operating systems and processors that it runs on, such as linux-x86_64.
        jetson: whether it is a Jetson, where the GPU shares the CPU's memory.
        notes: what to know about it, and where that comes from.
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
    portable: tuple[str, ...] = ()
    platforms: tuple[str, ...] = (X86, ARM)
    jetson: bool = False
    notes: tuple[str, ...] = ()

    @property
    def install(self) -> str:
        """How to get what builds its engines; empty where there are no engines."""
        if self.jetson:
            return "it comes with JetPack, and engines are built on the board: apt install python3-libnvinfer there"
        if self.module is None or self.versions is None:
            return ""
        if self.module == RTX:
            return "pip install 'edgeformer[rtx]'"
        least, below = self.versions
        return f"pip install 'edgeformer[gpu]' 'tensorrt>={least},<{below}'"

    @property
    def features(self) -> frozenset[str]:
        """What the oldest version of its range can do; a builder asks `capabilities` for the installed one."""
        if self.module is None or self.versions is None:
            return frozenset()
        return capabilities(self.module, self.versions[0], jetson=self.jetson)


def tensorrt(name: str, versions: tuple[str, str], gpus: str, attention: tuple[str, ...], *notes: str) -> Target:
    """A row of TensorRT on servers and workstations, which builds for the GPU that it finds."""
    return Target(
        name, "tensorrt", PLANS, attention, DOCUMENTED, TENSORRT, versions, None, tuple(gpus.split()), notes=notes
    )


def jetson(
    name: str, versions: tuple[str, str], gpu: str, attention: tuple[str, ...], *notes: str, skips: bool = False
) -> Target:
    """A row of TensorRT on a Jetson; TensorRT 11.0 to 11.4.0 do not exist there."""
    excluded = ("11.0", "11.4.1") if skips else None
    return Target(
        name, "tensorrt", PLANS, attention, DOCUMENTED, TENSORRT, versions, excluded, (gpu,), (), (ARM,), True, notes
    )


NO_LAYERS = "No attention, cache or rotary layer before 10.14 and 10.15: the plugin, or the pattern that it fuses."
INT8 = "int8: whether weights stay in 8 bits inside the engine is the compiler's choice; the build report says."
JETPACK_7_2 = "JetPack 7.2 has 10.16; 7.2.2 and later have 11.4.1, which adds lengths and lower-right attention."
CUDA_HALF = (
    "fp16 alone: ONNX Runtime's GroupQueryAttention has no float32 kernel for CUDA (its sources), and its CPU kernels, "
    "which check the graphs, have no bfloat16."
)
CPU_HALF = (
    "fp16 and bf16: matrices are stored in 16 bits and computed in float32: half the file, the memory and time of fp32."
)
NO_TENSORRT_PROVIDER = (
    "ONNX Runtime's TensorRT provider is not used: TensorRT's parser refuses these graphs at every attention (run with "
    "RTX 1.7.1: no lengths as a mask), so that it would compile the pieces between at the first run of each shape. A "
    "tensorrt target is one engine, compiled once."
)

ROWS = (
    Target("ort-cpu", "ort-cpu", ("fp32", "fp16", "bf16", "int8", "int8-rows", "int4", "auto"), ("contrib",), RAN,
           notes=(CPU_HALF,)),
    Target("ort-cuda", "ort-cuda", ("fp16",), ("contrib",), CHECKED_ON_CPU,
           notes=(CUDA_HALF, NO_TENSORRT_PROVIDER)),
    tensorrt("tensorrt-10.3", ("10.3", "10.13"), "7.5 8.0 8.6 8.9 9.0", WITHOUT_LAYERS_AOT, NO_LAYERS, INT8,
             "10.3 to 10.12. plugin-aot from 10.9 on; with an older version installed it is refused."),
    tensorrt("tensorrt-10.13", ("10.13", "10.16"), "7.5 8.0 8.6 8.9 9.0 10.0 12.0", WITHOUT_LAYERS_AOT, NO_LAYERS, INT8,
             "10.13 to 10.15; the layers of 10.15 are used by the rows from 10.16 on."),
    tensorrt("tensorrt-10.16", ("10.16", "11.0"), "7.5 8.0 8.6 8.9 9.0 10.0 12.0 12.1", WITH_LAYERS, INT8,
             "No lower-right attention: a mask says what each query sees."),
    tensorrt("tensorrt-11", ("11.0", "12.0"), "7.5 8.0 8.6 8.9 9.0 10.0 10.3 12.0 12.1", WITH_LAYERS, INT8,
             "Strongly typed only. Attention in fp16 sums in fp32 from 11.3 on."),
    Target("tensorrt-rtx", "tensorrt", PLANS, ("native",), BUILT, RTX, ("1.7", "2.0"), None,
           ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1"), ("8.0", "8.6", "8.9", "12.0", "12.1"),
           notes=("Builds without a GPU, for the compute capabilities that are named (run with 1.7.1).",
                  "7.5 is not in the portable set: the vendor's support matrix advises against engines that serve it "
                  "and others, and has no bf16, int8 or int4 there. Named beside others, fp16 builds (run).",
                  "No plugins (run). Stripped and refittable plans ask for a driver when they are built (run). Flags "
                  "for weight streaming and hardware compatibility are taken and change nothing (run).")),
    jetson("jetson-orin-jp6", ("10.3", "10.4"), "8.7", WITHOUT_LAYERS, NO_LAYERS, INT8, "JetPack 6.1 and 6.2."),
    jetson("jetson-orin-jp7.2", ("10.16", "12.0"), "8.7", WITH_LAYERS, JETPACK_7_2, INT8, skips=True),
    jetson("jetson-thor-jp7.1", ("10.13", "10.14"), "11.0", WITHOUT_LAYERS_AOT, NO_LAYERS, INT8),
    jetson("jetson-thor-jp7.2", ("10.16", "12.0"), "11.0", WITH_LAYERS, JETPACK_7_2, INT8, skips=True),
)  # fmt: skip
TARGETS = {target.name: target for target in ROWS}
