"""What each version of TensorRT and of TensorRT for RTX can do: one table, looked up by feature."""

from __future__ import annotations

import dataclasses

from edgeformer.runtime.backends import older

TENSORRT, RTX = "tensorrt", "tensorrt_rtx"


@dataclasses.dataclass(frozen=True, slots=True)
class Feature:
    """Something that a builder may rely on.

    Attributes:
        name: what code asks for.
        meaning: in words, for people.
        tensorrt: the version of TensorRT that it came with; None where it never did.
        rtx: the same for TensorRT for RTX.
        jetson: the version that it came with on Jetson, where that is another one.
    """

    name: str
    meaning: str
    tensorrt: str | None
    rtx: str | None
    jetson: str | None = None

    def since(self, module: str, *, jetson: bool = False) -> str | None:
        if jetson and module == TENSORRT:
            return self.jetson or self.tensorrt
        return self.rtx if module == RTX else self.tensorrt


FEATURES = {
    feature.name: feature
    for feature in (
        Feature("strong_typing", "types come from the graph", "10.0", "1.0"),
        Feature("strongly_typed_only", "there are no builder flags for types", "11.0", "1.0"),
        Feature("attention_layer", "a fused attention layer, from ONNX Attention", "10.14", "1.7"),
        Feature("kv_cache_update", "caches written in place, from ONNX TensorScatter", "10.15", "1.7"),
        Feature("rotary_layer", "a rotary layer, from ONNX RotaryEmbedding", "10.15", "1.7"),
        Feature("lower_right_causal", "causal attention aligned to the cache's end", "11.0", None, "11.4.1"),
        Feature("fp32_accumulation", "fp16 attention that sums in fp32", "11.3", None, "11.4.1"),
        Feature("plugins", "IPluginV3 classes of one's own", "10.0", None),
        Feature("aot_plugins", "plugins compiled ahead of time into the engine", "10.9", None),
        Feature("aliased_plugin_io", "plugins that write an input in place", "10.3", None),
        Feature("aliased_io_query", "the engine tells which input an output shares memory with", "10.15", "1.7"),
        Feature("weight_streaming", "weights that stay in the host's memory", "10.0", None),
        Feature("timing_cache", "measured timings kept between builds", "10.0", None),
        Feature("stripping", "plans without weights, refitted when loaded", "10.0", "1.7"),
        Feature("version_compatible", "later versions and the lean runtime run the plan", "10.0", None),
        Feature("hardware_compatible", "later GPUs run the plan", "10.0", None),
        Feature("int4_weights", "weights in 4 bits, in blocks", "10.0", "1.7"),
        Feature("builds_without_gpu", "engines are built without a GPU or driver", None, "1.0"),
        Feature("runtime_cache", "compiled kernels kept beside the artifact", None, "1.0"),
    )
}  # fmt: skip


def capabilities(module: str, version: str, *, jetson: bool = False) -> frozenset[str]:
    """Names of all features that a version has.

    Args:
        module: `tensorrt` or `tensorrt_rtx`.
        version: of that module, such as 10.13.3.9: a builder takes it from the module that is installed.
        jetson: whether it runs on a Jetson.
    """
    return frozenset(
        feature.name
        for feature in FEATURES.values()
        if (since := feature.since(module, jetson=jetson)) is not None and not older(version, since)
    )
