"""Linear maps of the same input, as one product.

    x -+-> MatMul(A) -> Add(a)              x -> MatMul(A|B|C) -> Add(a|b|c) -> Split -+->
       +-> MatMul(B) -> Add(b)   becomes                                               +->
       '-> MatMul(C) -> Add(c)                                                         '->

One large product keeps the cores busier than three small ones. Where all parts go to one GroupQueryAttention, that
takes them unsplit. Without biases there are no Adds.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import Product, constant, products, register


class PackProjections(InPlacePass):
    """Ensures: no two MatMul with constant weights read the same value, but for one with a bias and one without."""

    def call(self, model: ir.Model) -> PassResult:
        siblings: defaultdict[tuple[ir.Value, bool], list[Product]] = defaultdict(list)
        for product in products(model.graph):
            siblings[product.x, product.bias is None].append(product)
        groups = [group for group in siblings.values() if len(group) > 1]
        for group in groups:
            self.pack(model.graph, group)
        for node in list(model.graph):
            if node.op_type == "GroupQueryAttention":
                self.take_unsplit(model.graph, node)
        return PassResult(model, modified=bool(groups))

    def pack(self, graph: ir.Graph, group: list[Product]) -> None:
        # GroupQueryAttention wants query, key, value; the order of anything else does not matter.
        order = {value: i for p in group for use in p.result.consumers() for i, value in enumerate(use.inputs)}
        parts = sorted(group, key=lambda product: order[product.result])
        name = f"{parts[0].name}.packed"
        weight = register(graph, f"{name}.weight", np.concatenate([part.weight for part in parts], axis=1))
        sizes = register(graph, f"{name}.sizes", np.array([part.weight.shape[1] for part in parts], np.int64))
        tape = ir.tape.Tape()
        packed = tape.op("MatMul", [parts[0].x, weight])
        if parts[0].bias is not None:
            # Not by np.asarray, which makes float64 of a tensor in a file under numpy 2.2.
            biases = [tensor.numpy() for part in parts if (tensor := constant(part.bias)) is not None]
            packed = tape.op("Add", [packed, register(graph, f"{name}.bias", np.concatenate(biases))])
        split = tape.op_multi_out("Split", [packed, sizes], {"axis": -1}, num_outputs=len(parts))
        graph.insert_before(group[0].node, tape.nodes)
        for piece, part in zip(split, parts, strict=True):
            piece.type, piece.shape = part.result.type, part.result.shape
            part.result.replace_all_uses_with(piece)

    def take_unsplit(self, graph: ir.Graph, node: ir.Node) -> None:
        split = node.inputs[0].producer() if node.inputs[0] else None
        if split is None or split.op_type != "Split" or tuple(split.outputs) != tuple(node.inputs[:3]):
            return
        node.replace_input_with(0, split.inputs[0])
        node.replace_input_with(1, None)
        node.replace_input_with(2, None)
