"""What the passes over attentions ask of one, and what they put around another."""

from __future__ import annotations

import onnx_ir as ir

from edgeformer.exporter.ort_cpu.matching import producer, register_once, take_over
from edgeformer.runtime import names

MICROSOFT = "com.microsoft"
SWAPPED = (0, 2, 1, 3)  # (batch, len, num_heads, head_dim) to (batch, num_heads, len, head_dim), and back


def head_sizes(value: ir.Value | None) -> tuple[int, int] | None:
    """num_heads and head_dim of (batch, num_heads, len, head_dim); None where they are not known."""
    if value is None or value.shape is None or len(value.shape) != 4:
        return None
    heads, width = value.shape[1], value.shape[3]
    return (heads, width) if isinstance(heads, int) and isinstance(width, int) else None


def score_scale(attention: ir.Node) -> float | None:
    """What the scores are multiplied with before the mask; None if more than that is done with them."""
    sizes = head_sizes(attention.inputs[0])
    more = (attention.attributes.get(name) for name in ("softcap", "is_causal"))
    if (
        sizes is None
        or any(attribute.value for attribute in more if attribute is not None)
        or any(value is not None for value in attention.inputs[4:])
        or any(list(value.uses()) for value in attention.outputs[1:])
    ):
        return None
    scale = attention.attributes.get("scale")
    return float(sizes[1] ** -0.5) if scale is None else scale.as_float()


def unusual(scale: float, head_dim: int) -> dict[str, float]:
    """The attribute that says so, where scores are not scaled by 1 / sqrt(head_dim)."""
    usual = head_dim**-0.5
    return {} if abs(scale - usual) <= 1e-6 * usual else {"scale": scale}


def is_transposed(node: ir.Node | None) -> bool:
    """Whether it is a Transpose of length and heads."""
    return node is not None and node.op_type == "Transpose" and tuple(node.attributes["perm"].as_ints()) == SWAPPED


def has_width(value: ir.Value | None, width: int) -> bool:
    """Whether it is known to be (batch, len, width)."""
    return value is not None and value.shape is not None and len(value.shape) == 3 and value.shape[2] == width


def without_heads(graph: ir.Graph, value: ir.Value, before: ir.Node) -> ir.Value:
    """(batch, num_heads, len, head_dim) as (batch, len, num_heads * head_dim): what was split, or else made so."""
    heads, head_dim = head_sizes(value) or (0, 0)
    transpose = producer(value, "Transpose")
    apart = transpose.inputs[0] if transpose is not None and is_transposed(transpose) else None
    split = producer(apart, "Reshape")
    if split is not None and has_width(split.inputs[0], heads * head_dim) and split.inputs[0] is not None:
        return split.inputs[0]
    tape = ir.tape.Tape()
    if apart is None:
        apart = tape.op("Transpose", [value], {"perm": SWAPPED})
    merged = tape.op("Reshape", [apart, register_once(graph, f"merged.{heads * head_dim}", [0, 0, heads * head_dim])])
    graph.insert_before(before, tape.nodes)
    return merged


def merged_by(graph: ir.Graph, attention: ir.Node, result: ir.Value) -> None:
    """Let a result (batch, len, num_heads * head_dim) take an attention's place, and that of merging its heads."""
    heads, head_dim = head_sizes(attention.inputs[0]) or (0, 0)
    attended = attention.outputs[0]
    swapped = only_user(attended, "Transpose")
    merged = only_user(swapped, "Reshape")
    if swapped is not None and is_transposed(swapped.producer()) and has_width(merged, heads * head_dim):
        take_over(merged, result)  # type: ignore[arg-type]  # has_width has seen it
        return
    tape = ir.tape.Tape()
    apart = tape.op("Reshape", [result, register_once(graph, f"apart.{heads}.{head_dim}", [0, 0, heads, head_dim])])
    again = tape.op("Transpose", [apart], {"perm": SWAPPED})
    graph.insert_before(attention, tape.nodes)
    take_over(attended, again)


def only_user(value: ir.Value | None, op_type: str) -> ir.Value | None:
    """What the only user of a value makes of it, if that is an operator of this type."""
    users = list(value.consumers()) if value is not None else []
    return users[0].outputs[0] if len(users) == 1 and users[0].op_type == op_type else None


def is_write(node: ir.Node | None) -> bool:
    """Whether it writes new tokens behind each row's length into a cache."""
    if node is None or len(node.inputs) < 3:
        return False
    cache, _, at = node.inputs[:3]
    axis, mode = node.attributes.get("axis"), node.attributes.get("mode")
    return (
        cache is not None and cache.is_graph_input()
        and at is not None and at.is_graph_input() and at.name == names.CACHE_LENGTHS
        and (axis is None or axis.as_int() in (-2, 2))
        and (mode is None or mode.as_string() == "linear")
    )  # fmt: skip
