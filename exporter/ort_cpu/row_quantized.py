"""Products in int8 whose activations are quantized row by row, for graphs that compute many rows at once.

    x -> MatMul(W) -> Add(b)

becomes, with W in 7 bits and one scale for each of its columns,

    x -+-> Abs -> ReduceMax -> Mul(1/127) = s -.
       '-> Div(s) -> QuantizeLinear(1) -> MatMulIntegerToFloat -> Mul(s) -> Add(b)

A row's scale is its own largest value, so that a row's result does not depend on the rows beside it.

Weights get 7 of the 8 bits because processors without VNNI add two products of activation and weight in 16 bits, which
saturate: 2 * 255 * 64 is the most that fits.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.matching import Product, products, register, take_over

LARGEST_CODE = 64
SMALLEST = 1e-12  # a row of zeros is divided by this instead of by zero


def quantize_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 codes (k, n), from -64 to 64, and float32 scales (n,) of a float32 weight (k, n)."""
    scales = np.abs(weight).max(axis=0) / LARGEST_CODE
    codes = np.rint(weight / np.where(scales == 0, 1, scales))
    return np.clip(codes, -LARGEST_CODE, LARGEST_CODE).astype(np.int8), scales.astype(np.float32)


class RowQuantized(InPlacePass):
    """Ensures: every MatMul with a constant weight computes in int8, each row on its own."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = products(graph)
        if not found:
            return PassResult(model, modified=False)
        numbers = {"row_axis": np.array([-1]), "row_step": np.float32(1 / 127), "row_smallest": np.float32(SMALLEST),
                   "row_one": np.float32(1), "row_zero_point": np.uint8(128)}  # fmt: skip
        known = {name: register(graph, name, np.asarray(number)) for name, number in numbers.items()}
        for product in found:
            self.rewrite(graph, product, known)
        model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=True)

    def rewrite(self, graph: ir.Graph, product: Product, known: dict[str, ir.Value]) -> None:
        one, zero_point = known["row_one"], known["row_zero_point"]
        codes, scales = quantize_columns(product.weight)
        w = register(graph, f"{product.name}.codes", codes)
        columns = register(graph, f"{product.name}.scales", scales)
        tape = ir.tape.Tape()
        largest = tape.op("ReduceMax", [tape.op("Abs", [product.x]), known["row_axis"]], {"keepdims": 1})
        scale = tape.op("Max", [tape.op("Mul", [largest, known["row_step"]]), known["row_smallest"]])
        quantized = tape.op("QuantizeLinear", [tape.op("Div", [product.x, scale]), one, zero_point])
        total = tape.op("MatMulIntegerToFloat", [quantized, w, one, columns, zero_point], domain=MICROSOFT)
        result = tape.op("Mul", [total, scale])
        graph.insert_before(product.node, tape.nodes)
        take_over(product.node.outputs[0], result)
