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
        rtx: the same for TensorRT for RTX. 1.7 is the oldest that was looked at.
        jetson: the version of TensorRT that it came with on Jetson, where that is another one.
    """

    name: str
    meaning: str
    tensorrt: str | None
    rtx: str | None = None
    jetson: str | None = None

    def since(self, module: str, *, jetson: bool = False) -> str | None:
        """The version of a module that it came with, None where it never did."""
        if module == RTX:
            return self.rtx
        return self.jetson if jetson and self.jetson else self.tensorrt


# TensorRT's column is from its release notes and documentation. RTX's was seen in 1.7.1: what is None there was refused
# by the builder or changed nothing in the plan (docs/targets.md says which).
FEATURES = {
    feature.name: feature
    for feature in (
        Feature("strong_typing", "types come from the graph", "10.0", "1.7"),
        Feature("strongly_typed_only", "there are no builder flags for types", "11.0", "1.7", jetson="11.4.1"),
        Feature("attention_layer", "ONNX Attention becomes a fused layer", "10.14", "1.7"),
        Feature("kv_cache_update", "ONNX TensorScatter becomes a layer that writes caches in place", "10.15", "1.7"),
        Feature("rotary_layer", "ONNX RotaryEmbedding becomes a layer", "10.15", "1.7"),
        Feature("aliased_io_query", "an engine tells which input an output shares memory with", "10.15", "1.7"),
        Feature("lower_right_causal", "causal attention aligned to the cache's end", "11.0", "1.7", jetson="11.4.1"),
        Feature("key_value_lengths", "attention under each row's length", "11.0", "1.7", jetson="11.4.1"),
        Feature("fp32_accumulation", "attention in fp16 that sums in fp32", "11.3", "1.7", jetson="11.4.1"),
        Feature("plugins", "IPluginV3 classes of one's own", "10.0"),
        Feature("aliased_plugin_io", "plugins that write an input in place", "10.3"),
        Feature("aot_plugins", "plugins compiled into the engine, no Python at run time", "10.9"),
        Feature("int4_weights", "weights in 4 bits, in blocks", "10.0", "1.7"),
        Feature("weight_streaming", "weights that stay in the host's memory", "10.0"),
        Feature("timing_cache", "measured timings kept between builds", "10.0"),
        Feature("stripping", "plans without weights, which are put back when they are loaded", "10.0"),
        Feature("version_compatible", "the lean runtime of its version runs the plan as well", "10.0"),
        Feature("hardware_compatible", "later GPUs run the plan", "10.0"),
        Feature("builds_without_gpu", "engines are built without a GPU or a driver", None, "1.7"),
        Feature("runtime_cache", "kernels that were compiled when running are kept", None, "1.7"),
    )
}


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
