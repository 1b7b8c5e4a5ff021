"""One attention alone, built to see whether TensorRT has a kernel for it: some tenths of a second without a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from edgeformer.exporter.tensorrt.engine_layers import dtype_name
from edgeformer.exporter.tensorrt.network_tensors import dims_of

RANGE = (1, 8, 16)  # of every dynamic dimension
SHORTEST, LONGEST = 16, 256  # head_dim: what TensorRT documents for its fused kernels


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What decides whether an attention has a kernel: two with equal kinds share the answer.

    Attributes:
        dtype: name of a member of `DataType`, such as HALF.
        query: (batch, num_heads, q_len, head_dim), -1 where a dimension is dynamic.
        key: (batch, num_kv_heads, kv_len, head_dim).
        mask: none, boolean, additive.
        mask_shape: the dimensions of the mask.
        causal: how it is causal: the name of a member of `CausalMaskKind`, NONE or UPPER_LEFT before TensorRT 11.
    """

    dtype: str
    query: tuple[int, ...]
    key: tuple[int, ...]
    mask: str
    mask_shape: tuple[int, ...]
    causal: str

    def describe(self) -> str:
        """`float16, 8 heads of 64 over 2 key and value heads, boolean mask`."""
        heads, kv_heads, head_dim = self.query[1], self.key[1], self.query[3]
        grouped = f" over {kv_heads} key and value heads" if kv_heads != heads else ""
        hidden = f"{self.mask} mask" if self.mask != "none" else "no mask"
        causal = "" if self.causal == "NONE" else f", {self.causal.lower().replace('_', '-')} causal"
        return f"{dtype_name(self.dtype)}, {heads} heads of {head_dim}{grouped}, {hidden}{causal}"

    def nearby(self) -> Iterator[tuple[str, Kind]]:
        """What might have a kernel instead, the smallest changes first, each with how to ask for it."""
        precisions = [dtype for dtype in ("HALF", "BF16") if self.dtype not in ("HALF", "BF16")]
        types = [(dtype_name(dtype), dataclasses.replace(self, dtype=dtype)) for dtype in precisions]
        yield from types
        head_dim = self.query[3]
        nearest = min(max(-(-head_dim // 8) * 8, SHORTEST), LONGEST)
        if nearest != head_dim:
            for words, kind in [("", self), *((f"{words} and ", kind) for words, kind in types)]:
                yield f"{words}head_dim {nearest}", kind.with_head_dim(nearest)
        if self.mask == "additive":
            yield "a boolean mask", dataclasses.replace(self, mask="boolean")
        if self.key[1] != self.query[1]:
            every = (self.key[0], self.query[1], *self.key[2:])
            yield f"{self.query[1]} key and value heads", dataclasses.replace(self, key=every)

    def with_head_dim(self, head_dim: int) -> Kind:
        return dataclasses.replace(self, query=(*self.query[:3], head_dim), key=(*self.key[:3], head_dim))


def kind_of(trt: Any, attention: Any) -> Kind:
    """The kind of an `IAttention` of a network that was parsed."""
    query, key = attention.get_input(0), attention.get_input(1)
    mask = attention.mask
    causal = getattr(attention, "causal_kind", None)
    return Kind(
        dtype=query.dtype.name,
        query=dims_of(query),
        key=dims_of(key),
        mask="none" if mask is None else "boolean" if mask.dtype == trt.DataType.BOOL else "additive",
        mask_shape=dims_of(mask) if mask is not None else (),
        causal=causal.name if causal is not None else "UPPER_LEFT" if attention.causal else "NONE",
    )


def has_kernel(trt: Any, like: Any, compute_capabilities: Sequence[str], kind: Kind) -> bool:
    """Whether an attention of this kind builds alone, without falling apart.

    Args:
        trt: `tensorrt` or `tensorrt_rtx`; `tensorrt` needs a GPU here.
        like: a network whose builder and flags to build it with.
        compute_capabilities: GPUs to build for, such as 8.9; none for the one that is here.
        kind: the attention.
    """
    builder = like.builder
    network = builder.create_network(like.flags)
    profile = builder.create_optimization_profile()

    def add_input(name: str, dtype: Any, shape: tuple[int, ...]) -> Any:
        profile.set_shape(name, *(tuple(limit if dim < 0 else dim for dim in shape) for limit in RANGE))
        return network.add_input(name, dtype, shape)

    dtype = getattr(trt.DataType, kind.dtype)
    query = add_input("query", dtype, kind.query)
    key, value = (add_input(name, dtype, kind.key) for name in ("key", "value"))
    attention = add_attention(trt, network, query, key, value, kind.causal)
    if attention is None:
        return False
    attention.decomposable = False
    if kind.mask != "none":
        attention.mask = add_input("mask", trt.DataType.BOOL if kind.mask == "boolean" else dtype, mask_shape(kind))
    network.mark_output(attention.get_output(0))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    if compute_capabilities:
        config.num_compute_capabilities = len(compute_capabilities)
        for index, capability in enumerate(compute_capabilities):
            config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}"), index)
    return builder.build_serialized_network(network, config) is not None


def add_attention(trt: Any, network: Any, query: Any, key: Any, value: Any, causal: str) -> Any:
    softmax = trt.AttentionNormalizationOp.SOFTMAX
    if hasattr(network, "add_attention_v2"):  # TensorRT 11
        return network.add_attention_v2(query, key, value, softmax, getattr(trt.CausalMaskKind, causal))
    return network.add_attention(query, key, value, softmax, causal != "NONE")


def mask_shape(kind: Kind) -> tuple[int, ...]:
    """The mask's shape, its dynamic dimensions taken from query and key where those are static."""
    sizes = (kind.query[0], kind.query[1], kind.query[2], kind.key[2])[4 - len(kind.mask_shape) :]
    return tuple(size if dim < 0 else dim for dim, size in zip(kind.mask_shape, sizes, strict=True))
