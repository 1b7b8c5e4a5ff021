"""Attention over a cache and over a source, as the operators that ONNX Runtime's CPU kernels do fastest.

    q -> Reshape -> Transpose ------------------.
    k -> Reshape -> Transpose -> TensorScatter --+-> Attention -> Transpose -> Reshape
    v -> Reshape -> Transpose -> TensorScatter --'      ^ causal mask

becomes one `GroupQueryAttention`, which writes the cache in place and stops at each row's length; and

    q -> Reshape -> Transpose --.
    key, value -----------------+-> Attention -> Transpose -> Reshape
                                      ^ source mask

becomes one `MultiHeadAttention`, which takes the source lengths themselves as its mask.
"""

from __future__ import annotations

import math

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

from edgeformer.exporter.ort_cpu.matching import add_input, ancestry, graph_input, producer, take_over
from edgeformer.runtime import names

MICROSOFT = "com.microsoft"
SWAPPED = (0, 2, 1, 3)  # (batch, len, num_heads, head_dim) to (batch, num_heads, len, head_dim)
HEAD_STEP = 8  # GroupQueryAttention takes heads of a multiple of this width, and says so when it runs
OF_POSITIONS = {"Add", "Concat", "Expand", "Gather", "Range", "Reshape", "Shape", "Slice", "Squeeze", "Unsqueeze"}


def heads_merged(attention: ir.Node) -> ir.Node | None:
    """The Reshape in Attention -> Transpose -> Reshape, whose output is (batch, len, num_heads * head_dim)."""
    users = list(attention.outputs[0].consumers())
    if len(users) != 1 or users[0].op_type != "Transpose" or tuple(users[0].attributes["perm"].as_ints()) != SWAPPED:
        return None
    users = list(users[0].outputs[0].consumers())
    return users[0] if len(users) == 1 and users[0].op_type == "Reshape" else None


def before_heads(value: ir.Value | None) -> ir.Value | None:
    """x in x -> Reshape -> Transpose -> value, where x is (batch, len, num_heads * head_dim)."""
    transpose = producer(value, "Transpose")
    if transpose is None or tuple(transpose.attributes["perm"].as_ints()) != SWAPPED:
        return None
    reshape = producer(transpose.inputs[0], "Reshape")
    return reshape.inputs[0] if reshape else None


def is_mask_of(mask: ir.Value | None, comparison: str, lengths: str) -> bool:
    """Whether mask is `position of a key (comparison) these lengths`, in the shape that an attention takes."""
    while mask is not None and (node := mask.producer()) is not None and node.op_type in ("Unsqueeze", "Expand"):
        mask = node.inputs[0]
    compare = producer(mask, comparison)
    if compare is None:
        return False
    (operators, keys), (more, limits) = (ancestry(side) for side in compare.inputs)
    return (operators | more) <= OF_POSITIONS and lengths not in keys and lengths in limits


def is_plain(attention: ir.Node) -> bool:
    """Whether it scores by q k / sqrt(head_dim) under its mask, and nothing else."""
    query = attention.inputs[0]
    head_dim = query.shape[-1] if query is not None and query.shape is not None else None
    usual = head_dim**-0.5 if isinstance(head_dim, int) else math.nan
    scale = attention.attributes.get("scale")
    if scale is not None and not math.isclose(scale.as_float(), usual, rel_tol=1e-6):
        return False
    more = (attention.attributes.get(name) for name in ("softcap", "is_causal"))
    return (
        not any(attribute.value for attribute in more if attribute is not None)
        and all(value is None for value in attention.inputs[4:])
        and not any(list(value.uses()) for value in attention.outputs[1:])
    )


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


def num_heads(query: ir.Value | None) -> int:
    """The second extent of (batch, num_heads, q_len, head_dim)."""
    extent = query.shape[1] if query is not None and query.shape is not None else None
    if not isinstance(extent, int):
        raise PreconditionError(f"the number of heads of {query} is not known")
    return extent


class CachedAttention(InPlacePass):
    """Self-attention over the caches becomes GroupQueryAttention.

    Requires: the step graph of `edgeformer.runtime.names`. Ensures: no Attention reads a cache; the rows' lengths are
    inputs. With several new tokens in a row, the kernel takes empty caches only, or a batch of one.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [node for node in graph if node.op_type == "Attention" and producer(node.inputs[1], "TensorScatter")]
        if not found:
            return PassResult(model, modified=False)
        last = add_input(graph, names.LAST_POSITIONS, ir.DataType.INT32, ("batch",))
        total = add_input(graph, names.TOTAL_LENGTH, ir.DataType.INT32, (1,))
        for node in found:
            self.rewrite(graph, node, last, total)
        model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=True)

    def rewrite(self, graph: ir.Graph, node: ir.Node, last: ir.Value, total: ir.Value) -> None:
        query, key, value, mask = node.inputs[:4]
        writes = [producer(cache, "TensorScatter") for cache in (key, value)]
        merged = heads_merged(node)
        if not all(map(is_write, writes)) or merged is None or not is_mask_of(mask, "LessOrEqual", names.CACHE_LENGTHS):
            raise PreconditionError(f"{node.name}: not a causal attention over a cache")
        sources = [before_heads(query), *(before_heads(write.inputs[1]) for write in writes if write)]
        if None in sources or not is_plain(node):
            raise PreconditionError(f"{node.name}: not a plain attention between split and merged heads")
        heads, head_dim = num_heads(query), query.shape[-1] if query is not None and query.shape is not None else None
        if not isinstance(head_dim, int) or head_dim % HEAD_STEP:
            raise PreconditionError(
                f"{node.name}: heads are {head_dim} wide, GroupQueryAttention takes multiples of {HEAD_STEP}"
            )
        new = ir.node(
            "GroupQueryAttention",
            [*sources, *(write.inputs[0] for write in writes if write), last, total],
            {"num_heads": heads, "kv_num_heads": num_heads(key)},
            domain=MICROSOFT,
            num_outputs=3,
            name=node.name,
        )
        graph.insert_before(node, new)
        for old, replacement in zip((merged.outputs[0], key, value), new.outputs, strict=True):
            assert old is not None
            take_over(old, replacement)


class SourceAttention(InPlacePass):
    """Attention under a source mask becomes MultiHeadAttention with the source lengths as its mask.

    Requires: an encoder or step graph of `edgeformer.runtime.names`. Ensures: no Attention is left over a source. In a
    step graph, each source may serve several consecutive rows (the beams of one source): their queries attend side by
    side, so that the encoder's keys and values are not repeated.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [
            node for node in graph
            if node.op_type == "Attention" and is_mask_of(node.inputs[3], "Less", names.SOURCE_LENGTHS)
        ]  # fmt: skip
        if not found:
            return PassResult(model, modified=False)
        tape = ir.tape.Tape()
        lengths = tape.op("Cast", [graph_input(graph, names.SOURCE_LENGTHS)], {"to": ir.DataType.INT32})
        graph.insert_before(graph[0], tape.nodes)
        for node in found:
            self.rewrite(graph, node, lengths)
        model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=True)

    def rewrite(self, graph: ir.Graph, node: ir.Node, lengths: ir.Value) -> None:
        query, key, value = node.inputs[:3]
        merged, x = heads_merged(node), before_heads(query)
        if merged is None or x is None or query is None or key is None or value is None or not is_plain(node):
            raise PreconditionError(f"{node.name}: not an attention between split and merged heads")
        tape = ir.tape.Tape()
        attributes = {"num_heads": num_heads(query)}
        if key.is_graph_input():
            by_source = add_input(graph, names.SOURCE_SHAPE, ir.DataType.INT64, (3,))
            by_row = add_input(graph, names.ROW_SHAPE, ir.DataType.INT64, (3,))
            x = tape.op("Reshape", [x, by_source])
            attended = tape.op("MultiHeadAttention", [x, key, value, None, lengths], attributes, domain=MICROSOFT)
            result = tape.op("Reshape", [attended, by_row])
        else:
            inputs = [x, before_heads(key), before_heads(value), None, lengths]
            if None in inputs[:3]:
                raise PreconditionError(f"{node.name}: not an attention between split and merged heads")
            result = tape.op("MultiHeadAttention", inputs, attributes, domain=MICROSOFT)
        graph.insert_before(node, tape.nodes)
        take_over(merged.outputs[0], result)
