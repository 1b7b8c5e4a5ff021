"""One attention alone, built to see whether TensorRT has a kernel for it: some tenths of a second without a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgeformer.exporter.tensorrt.engine_layers import dtype_name
from edgeformer.exporter.tensorrt.network_tensors import SymbolicShapes, describe_tensor
from edgeformer.exporter.tensorrt.report import Shape
from edgeformer.runtime.bundle import Limits

UNNAMED: Limits = (1, 8, 16)  # of a dimension that no profile names
SHORTEST, LONGEST = 16, 256  # head_dim: what TensorRT documents for its fused kernels


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What decides whether an attention has a kernel: two with equal kinds share the answer.

    Attributes:
        dtype: name of a member of `DataType`, such as HALF.
        query: (batch, num_heads, q_len, head_dim), a name where a dimension is dynamic.
        key: (batch, num_kv_heads, kv_len, head_dim).
        mask: none, boolean, additive.
        mask_shape: the dimensions of the mask.
        causal: how it is causal: the name of a member of `CausalMaskKind`, NONE or UPPER_LEFT before TensorRT 11.
    """

    dtype: str
    query: Shape
    key: Shape
    mask: str
    mask_shape: Shape
    causal: str

    def describe(self) -> str:
        """`float16, 8 heads of 64 over 2 key and value heads, boolean mask`."""
        heads, kv_heads, head_dim = self.query[1], self.key[1], self.query[3]
        grouped = f" over {kv_heads} key and value heads" if kv_heads != heads else ""
        hidden = f"{self.mask} mask" if self.mask != "none" else "no mask"
        causal = "" if self.causal == "NONE" else f", {self.causal.lower().replace('_', '-')} causal"
        return f"{dtype_name(self.dtype)}, {heads} heads of {head_dim}{grouped}, {hidden}{causal}"

    def nearby(self) -> Iterator[tuple[str, Kind]]:
        """What might have a kernel instead, each with how to ask for it."""
        precisions = [dtype for dtype in ("HALF", "BF16") if self.dtype not in ("HALF", "BF16")]
        types = [(dtype_name(dtype), dataclasses.replace(self, dtype=dtype)) for dtype in precisions]
        yield from types
        head_dim = int(self.query[3])
        nearest = min(max(-(-head_dim // 8) * 8, SHORTEST), LONGEST)
        if nearest != head_dim:
            for words, kind in [("", self), *((f"{words} and ", kind) for words, kind in types)]:
                yield f"{words}head_dim {nearest}", kind.with_head_dim(nearest)
        if self.mask == "additive":
            yield "a boolean mask", dataclasses.replace(self, mask="boolean")

    def with_head_dim(self, head_dim: int) -> Kind:
        return dataclasses.replace(self, query=(*self.query[:3], head_dim), key=(*self.key[:3], head_dim))


def kind_of(trt: Any, attention: Any, shapes: SymbolicShapes, names: Sequence[str]) -> Kind:
    """The kind of an `IAttention` of a network that was parsed; `names` are the inputs of its ONNX node."""
    query, key = (describe_tensor(attention.get_input(i), shapes, names[i] if names else None) for i in range(2))
    mask = attention.mask
    causal = getattr(attention, "causal_kind", None)
    return Kind(
        dtype=attention.get_input(0).dtype.name,
        query=query.shape,
        key=key.shape,
        mask="none" if mask is None else "boolean" if mask.dtype == trt.DataType.BOOL else "additive",
        mask_shape=describe_tensor(mask, shapes).shape if mask is not None else (),
        causal=causal.name if causal is not None else "UPPER_LEFT" if attention.causal else "NONE",
    )


def has_kernel(
    trt: Any, like: Any, compute_capabilities: Sequence[str], kind: Kind, limits: Mapping[str, Limits]
) -> bool:
    """Whether an attention of this kind builds alone, without falling apart.

    Args:
        trt: `tensorrt` or `tensorrt_rtx`; `tensorrt` needs a GPU here.
        like: a network whose builder and flags to build it with.
        compute_capabilities: GPUs to build for, such as 8.9; none for the one that is here.
        kind: the attention.
        limits: least, usual and most of symbolic dimensions.
    """
    builder = like.builder
    network = builder.create_network(like.flags)
    profile = builder.create_optimization_profile()

    def add_input(name: str, dtype: Any, shape: Shape) -> Any:
        each = [limits.get(dim, UNNAMED) if isinstance(dim, str) else (dim, dim, dim) for dim in shape]
        profile.set_shape(name, *zip(*each, strict=True))
        return network.add_input(name, dtype, tuple(-1 if isinstance(dim, str) else dim for dim in shape))

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


def mask_shape(kind: Kind) -> Shape:
    """The mask's shape, its dynamic dimensions those of query and key, so that they agree in every profile."""
    sizes = (*kind.query[:3], kind.key[2])[4 - len(kind.mask_shape) :]
    return tuple(size if isinstance(dim, str) else dim for dim, size in zip(kind.mask_shape, sizes, strict=True))
