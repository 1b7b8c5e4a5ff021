"""Linear maps of the same input, as one product.

    x -+-> MatMul(A) -> Add(a)              x -> MatMul(A|B|C) -> Add(a|b|c) -> Split -+->
       +-> MatMul(B) -> Add(b)   becomes                                               +->
       '-> MatMul(C) -> Add(c)                                                         '->

One large product keeps the cores busier than three small ones. Where all parts go to one GroupQueryAttention, that
takes them unsplit.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import constant


def bias_after(product: ir.Node) -> ir.Node | None:
    """The Add of a constant vector that alone uses the product."""
    users = list(product.outputs[0].consumers())
    if len(users) != 1 or users[0].op_type != "Add":
        return None
    bias = constant(users[0].inputs[1])
    return users[0] if bias is not None and len(bias.shape) == 1 else None


def register(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    value = ir.val(name, const_value=ir.tensor(array, name=name))
    graph.register_initializer(value)
    return value


class PackProjections(InPlacePass):
    """Ensures: no two biased MatMul with constant weights read the same value."""

    def call(self, model: ir.Model) -> PassResult:
        siblings: defaultdict[ir.Value, list[ir.Node]] = defaultdict(list)
        for node in model.graph:
            if node.op_type == "MatMul" and constant(node.inputs[1]) is not None and bias_after(node):
                siblings[node.inputs[0]].append(node)
        groups = [group for group in siblings.values() if len(group) > 1]
        for group in groups:
            self.pack(model.graph, group)
        for node in list(model.graph):
            if node.op_type == "GroupQueryAttention":
                self.take_unsplit(model.graph, node)
        return PassResult(model, modified=bool(groups))

    def pack(self, graph: ir.Graph, products: list[ir.Node]) -> None:
        adds = [add for product in products if (add := bias_after(product))]
        # GroupQueryAttention wants query, key, value; the order of anything else does not matter.
        order = {value: i for add in adds for use in add.outputs[0].consumers() for i, value in enumerate(use.inputs)}
        pairs = sorted(zip(products, adds, strict=True), key=lambda pair: order[pair[1].outputs[0]])
        weights = [constant(product.inputs[1]).numpy() for product, _ in pairs]
        biases = [constant(add.inputs[1]).numpy() for _, add in pairs]
        name = f"{pairs[0][1].name}.packed"
        tape = ir.tape.Tape()
        weight = register(graph, f"{name}.weight", np.concatenate(weights, axis=1))
        bias = register(graph, f"{name}.bias", np.concatenate(biases))
        packed = tape.op("Add", [tape.op("MatMul", [products[0].inputs[0], weight]), bias])
        sizes = register(graph, f"{name}.sizes", np.array([len(b) for b in biases], np.int64))
        parts = tape.op_multi_out("Split", [packed, sizes], {"axis": -1}, num_outputs=len(pairs))
        graph.insert_before(min(products, key=lambda node: graph.index(node)), tape.nodes)
        for part, (_, add) in zip(parts, pairs, strict=True):
            part.type, part.shape = add.outputs[0].type, add.outputs[0].shape
            add.outputs[0].replace_all_uses_with(part)

    def take_unsplit(self, graph: ir.Graph, node: ir.Node) -> None:
        split = node.inputs[0].producer() if node.inputs[0] else None
        if split is None or split.op_type != "Split" or tuple(split.outputs) != tuple(node.inputs[:3]):
            return
        node.replace_input_with(0, split.inputs[0])
        node.replace_input_with(1, None)
        node.replace_input_with(2, None)
