"""Attention as two operators of our own, for TensorRT versions that have no attention layer.

Both stand in the ONNX domain `edgeformer`, version 1, and carry the attributes `plugin_namespace` ("edgeformer") and
`plugin_version` ("1") by which TensorRT's parser finds a plugin: its name is the operator's. Other attributes are those
of the plugin's creator, all given, all of them int32 but `scale`, which is float32. No input is optional.

`T` is the type of the graph's activations and of its caches: float16, bfloat16 or float32. Scores, softmax and sums are
computed in float32 whatever T is. Lengths are int32, one a row.

**CachedAttention** writes new keys and values behind each row's length and attends to all that the row then holds.

    inputs   0 query          T     (batch, num_heads, q_len, head_dim)
             1 key            T     (batch, num_kv_heads, q_len, head_dim)      of the new tokens
             2 value          T     (batch, num_kv_heads, q_len, head_dim)
             3 past_key       T     (batch, num_kv_heads, capacity, head_dim)   an input of the network
             4 past_value     T     (batch, num_kv_heads, capacity, head_dim)   an input of the network
             5 cache_lengths  int32 (batch,)                                    tokens that each row's cache holds
    outputs  0 context        T     (batch, num_heads, q_len, head_dim)
             1 present_key    T     (batch, num_kv_heads, capacity, head_dim)   aliases past_key, where versions allow
             2 present_value  T     (batch, num_kv_heads, capacity, head_dim)   aliases past_value
    attributes  scale         factor of the scores, 1 / sqrt(head_dim) if nothing else was asked for
                num_heads     a multiple of num_kv_heads; query head h reads head h // (num_heads / num_kv_heads)
                num_kv_heads
                window        a query sees its own position and the window - 1 before it; 0: all before it

    present_key[b, :, cache_lengths[b] + t] = key[b, :, t], for t < q_len; elsewhere past_key; likewise the values.
    Query t of row b stands at p = cache_lengths[b] + t and sees present positions j with j <= p, and with
    p - window < j where window > 0.

A padded column (t at or past the row's real tokens) is written and attended to like any other: its result is not used,
but it must be finite. Writes at or past capacity are dropped. Unwritten parts of a cache hold finite numbers.

**SourceAttention** attends from any number of queries to a source, in the encoder and from the decoder alike.

    inputs   0 query           T     (batch, num_heads, q_len, head_dim)
             1 key             T     (batch, num_kv_heads, source_len, head_dim)
             2 value           T     (batch, num_kv_heads, source_len, head_dim)
             3 source_lengths  int32 (batch,)                                   at least 1 each
    outputs  0 context         T     (batch, num_heads, q_len, head_dim)
    attributes  scale, num_heads, num_kv_heads   as above

    Every query of row b sees the positions j < source_lengths[b]. A row of length 0 gives zeros.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

from edgeformer.exporter.ort_cpu.matching import graph_input, take_over
from edgeformer.exporter.tensorrt.attention_matching import Attention, attentions
from edgeformer.runtime import names

DOMAIN = "edgeformer"  # of the operators, and the namespace of the plugins
VERSION = 1
CACHED_ATTENTION, SOURCE_ATTENTION = "CachedAttention", "SourceAttention"


class PluginAttention(InPlacePass):
    """Requires: a typed graph. Ensures: every attention is one of the two operators, every cache write within one."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = attentions(graph)
        lengths: dict[str, ir.Value] = {}
        for attention in found:
            name = names.CACHE_LENGTHS if attention.writes else names.SOURCE_LENGTHS
            if name not in lengths:
                lengths[name] = as_int32(graph, name)
            self.rewrite(graph, attention, lengths[name])
        if found:
            model.opset_imports[DOMAIN] = VERSION
        return PassResult(model, modified=bool(found))

    def rewrite(self, graph: ir.Graph, attention: Attention, lengths: ir.Value) -> None:
        if attention.window is None:
            what = "is added to the scores" if attention.adds_mask else "hides more than lengths and a window do"
            raise PreconditionError(
                f"{attention.node.name}: its mask {what}, which our own kernels do not take: choose the native or the "
                "primitive form"
            )
        attributes: dict[str, str | int | float] = {
            "scale": attention.scale, "num_heads": attention.num_heads, "num_kv_heads": attention.num_kv_heads,
            "plugin_namespace": DOMAIN, "plugin_version": str(VERSION),
        }  # fmt: skip
        old = [attention.node.outputs[0], *(write.outputs[0] for write in attention.writes)]
        inputs: list[ir.Value | None] = [attention.query, attention.key, attention.value, lengths]
        if attention.writes:
            attributes["window"] = attention.window
            new, past = ([write.inputs[i] for write in attention.writes] for i in (1, 0))
            inputs = [attention.query, *new, *past, lengths]
        node = ir.node(
            CACHED_ATTENTION if attention.writes else SOURCE_ATTENTION,
            inputs,
            attributes,
            domain=DOMAIN,
            version=VERSION,
            num_outputs=len(old),
            name=attention.node.name,
        )
        graph.insert_before(attention.node, node)
        for value, replacement in zip(old, node.outputs, strict=True):
            take_over(value, replacement)


def as_int32(graph: ir.Graph, name: str) -> ir.Value:
    cast = ir.node("Cast", [graph_input(graph, name)], {"to": ir.DataType.INT32}, name=f"{name}.int32")
    cast.outputs[0].dtype, cast.outputs[0].shape = ir.DataType.INT32, ir.Shape(["batch"])
    graph.insert_before(graph[0], cast)
    return cast.outputs[0]
