"""Products in int8 whose activations are quantized row by row, for graphs that compute many rows at once.

    x -> MatMul(W) -> Add(b)        becomes        RowQuantizedMatMul(x, codes, scales, b)

with W in 7 bits and one scale for each of its columns. The operator is a function that the graph carries:

    x -+-> Abs -> ReduceMax -> Mul(1/127) = s -.
       '-> Div(s) -> QuantizeLinear(1) -> MatMulIntegerToFloat -> Mul(s) -> Add(b)

which every ONNX Runtime computes as it stands, and `edgeformer.runtime.native` as one operator, to the same bits. A
row's scale is its own largest value, so that a row's result does not depend on the rows beside it.

Weights get 7 of the 8 bits because processors without VNNI add two products of activation and weight in 16 bits, which
saturate: 2 * 255 * 64 is the most that fits.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.matching import Product, constant, products, register, register_once, take_over
from edgeformer.exporter.ort_cpu.own_operators import COLUMNS, DOMAIN, QUAD, carry, function_of

Number = TypeVar("Number", bound=np.generic)

OPERATOR = "RowQuantizedMatMul"
LARGEST_CODE = 64
SMALLEST = 1e-12  # a row of zeros is divided by this instead of by zero
INPUTS = 32  # that a product has a multiple of


def quantize_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 codes (k, n), from -64 to 64, and float32 scales (n,) of a float32 weight (k, n)."""
    scales = np.abs(weight).max(axis=0) / LARGEST_CODE
    codes = np.rint(weight / np.where(scales == 0, 1, scales))
    return np.clip(codes, -LARGEST_CODE, LARGEST_CODE).astype(np.int8), scales.astype(np.float32)


def in_tiles(codes: NDArray[np.int8]) -> NDArray[np.int8]:
    """Codes (k, n) as (n / 16, k / 4, 16, 4), the order in which the native operator reads; k and n are multiples."""
    k, n = codes.shape
    tiles = codes.T.reshape(n // COLUMNS, COLUMNS, k // QUAD, QUAD)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1, 3))


def padded(array: NDArray[Number], multiples: tuple[int, ...]) -> NDArray[Number]:
    """With zeros at the ends of its axes, up to the next multiple."""
    return np.pad(array, [(0, -size % multiple) for size, multiple in zip(array.shape, multiples, strict=True)])


class RowQuantized(InPlacePass):
    """Ensures: every MatMul with a constant weight computes in int8, each row on its own."""

    def call(self, model: ir.Model) -> PassResult:
        found = products(model.graph)
        for product in found:
            self.rewrite(model.graph, product)
        if found:
            carry(model, row_quantized_function(model.opset_imports[""]))
            model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=bool(found))

    def rewrite(self, graph: ir.Graph, product: Product) -> None:
        codes, scales = quantize_columns(product.weight)
        k, n = codes.shape
        known = constant(product.bias)
        bias = known.numpy() if known is not None else np.zeros(n, np.float32)
        columns = [register(graph, f"{product.name}.{name}", padded(array, (COLUMNS,)))
                   for name, array in (("scales", scales), ("bias", bias))]  # fmt: skip
        tiles = register(graph, f"{product.name}.codes", in_tiles(padded(codes, (INPUTS, COLUMNS))))
        tape, x = ir.tape.Tape(), product.x
        if k % INPUTS:
            x = tape.op("Pad", [x, register_once(graph, f"row_pad_{k}", [0, -k % INPUTS]), None, last_axis(graph)])
        result = tape.op(OPERATOR, [x, tiles, *columns], domain=DOMAIN)
        if n % COLUMNS:
            start, end = (register_once(graph, f"row_{at}", [at]) for at in (0, n))
            result = tape.op("Slice", [result, start, end, last_axis(graph)])
        graph.insert_before((product.add or product.node), tape.nodes)
        take_over(product.result, result)


def last_axis(graph: ir.Graph) -> ir.Value:
    return register_once(graph, "row_axis", [-1])


def row_quantized_function(opset: int) -> ir.Function:
    """What the operator computes: (x, codes, scales, bias) -> (..., n)."""
    x, codes, scales, bias = inputs = [ir.val(name) for name in ("x", "codes", "scales", "bias")]
    tape = ir.tape.Tape()

    def number(value: np.generic | NDArray[np.generic]) -> ir.Value:
        return tape.op("Constant", [], {"value": ir.tensor(np.asarray(value))})

    one, zero_point = number(np.float32(1)), number(np.uint8(128))
    largest = tape.op("ReduceMax", [tape.op("Abs", [x]), number(np.array([-1]))], {"keepdims": 1})
    scale = tape.op("Max", [tape.op("Mul", [largest, number(np.float32(1 / 127))]), number(np.float32(SMALLEST))])
    quantized = tape.op("QuantizeLinear", [tape.op("Div", [x, scale]), one, zero_point])
    by_input = tape.op("Transpose", [codes], {"perm": [1, 3, 0, 2]})  # (k / 4, 4, n / 16, 16)
    width = tape.op("Shape", [scales])
    matrix = tape.op("Reshape", [by_input, tape.op("Concat", [number(np.array([-1])), width], {"axis": 0})])
    total = tape.op("MatMulIntegerToFloat", [quantized, matrix, one, scales, zero_point], domain=MICROSOFT)
    result = tape.op("Add", [tape.op("Mul", [total, scale]), bias])
    result.name = "y"
    return function_of(OPERATOR, inputs, list(tape.nodes), [result], {}, opset)
