"""Attention as TensorRT's own layers: `Attention` under its mask, `TensorScatter` from network input to output.

The portable graph has them already. What TensorRT would drop in silence is refused instead of passed on: the last input
of `Attention` (nonpad_kv_seqlen), and a causal attribute, which it aligns at the upper left, where a query at the
end of a longer cache would see its beginning only. The parser multiplies query and key by the root of the scale.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.tensorrt.attention_matching import attentions


class NativeAttention(InPlacePass):
    """Ensures: every attention is one that TensorRT's layers compute as ONNX defines it.

    With `fp32_accumulation`, query, key and value are cast to float32 before and the context back behind it, which
    TensorRT 11.3 and later read as: multiply in the narrow type, sum in float32 (from the vendor's documentation, not
    built here: RTX has no such kernel).
    """

    def __init__(self, *, fp32_accumulation: bool) -> None:
        super().__init__()
        self.fp32_accumulation = fp32_accumulation

    def call(self, model: ir.Model) -> PassResult:
        found = attentions(model.graph)
        for attention in found:
            # Attributes at their defaults are left out: a parser that does not know one warns about it.
            for name in ("is_causal", "softcap", "qk_matmul_output_mode"):
                attention.node.attributes.pop(name, None)
            if self.fp32_accumulation and attention.query.dtype != ir.DataType.FLOAT:
                accumulate_wide(model.graph, attention.node)
        return PassResult(model, modified=bool(found))


def accumulate_wide(graph: ir.Graph, node: ir.Node) -> None:
    (context,) = node.outputs
    narrow = context.dtype
    assert narrow is not None
    tape = ir.tape.Tape()
    wide = [tape.op("Cast", [value], {"to": ir.DataType.FLOAT}) for value in node.inputs[:3]]
    for i, (new, old) in enumerate(zip(wide, node.inputs[:3], strict=True)):
        assert old is not None
        new.dtype, new.shape = ir.DataType.FLOAT, old.shape
        node.replace_input_with(i, new)
    graph.insert_before(node, tape.nodes)
    back = ir.node("Cast", [context], {"to": narrow})
    context.replace_all_uses_with(back.outputs[0])
    back.replace_input_with(0, context)
    graph.insert_after(node, back)
    back.outputs[0].type, back.outputs[0].shape = ir.TensorType(narrow), context.shape
    context.type = ir.TensorType(ir.DataType.FLOAT)
