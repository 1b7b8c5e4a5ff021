"""Weights stored in 8 or 4 bits, and products computed in the narrow type.

    MatMul(x, weight)      becomes      MatMul(x, DequantizeLinear(codes, scales))

symmetric, zero point 0, which is all that TensorRT takes: int8 with a scale for each output, int4 with a scale for each
block of inputs of each output. The embedding stays as it is, and so does the projection to the vocabulary, whose errors
nothing behind it could mend.
"""

from __future__ import annotations

from typing import Literal

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.matching import Product, products, register
from edgeformer.exporter.tensorrt.typed import label
from edgeformer.runtime import names

BLOCKS = (128, 64, 32)  # the first that divides the input; kernels are written for the largest
NAMED = 3  # matrices that a note names
# By largest code: scales that are tried, as shares of the one that holds the largest weight. With few codes it is
# better to cut off that one than to round all the others more coarsely.
SHARES = {127: (1.0,), 7: tuple(1 - 0.05 * step for step in range(9))}


def quantize(
    weight: NDArray[np.float32], most: int, block: int, dtype: ir.DataType
) -> tuple[NDArray[np.int8], NDArray[np.generic]]:
    """Symmetric codes of a weight, each block of inputs of each output with a scale.

    Args:
        weight: float32 (k, n).
        most: the largest code, 127 or 7; the least is one further from zero.
        block: inputs that share a scale; k is a multiple of it.
        dtype: of the scales: codes are chosen for the scale as it is stored.

    Returns:
        int8 (k, n), and scales (k / block, n), those of SHARES with the least squared error.
    """
    k, n = weight.shape
    blocks = weight.reshape(k // block, block, n)
    largest = np.abs(blocks).max(1) / most
    codes, scales = np.zeros(blocks.shape, np.int8), np.zeros(largest.shape, dtype.numpy())
    least = np.full(largest.shape, np.inf, np.float32)
    for share in SHARES[most]:
        candidate = (largest * np.float32(share)).astype(dtype.numpy())
        stored = candidate.astype(np.float32)[:, None]
        coded = np.clip(np.rint(blocks / np.where(stored == 0, 1, stored)), -most - 1, most)
        error = np.square(coded * stored - blocks).sum(1)
        better = error < least
        least, scales = np.where(better, error, least), np.where(better, candidate, scales)
        codes = np.where(better[:, None], coded.astype(np.int8), codes)
    return codes.reshape(k, n), scales


class WeightOnly(InPlacePass):
    """Ensures: every MatMul with a constant matrix that fits, but the one to the vocabulary, reads a DequantizeLinear.

    `notes` says which did not fit, after it ran.
    """

    def __init__(self, weights: Literal["int8", "int4"], dtype: ir.DataType) -> None:
        super().__init__()
        self.weights, self.dtype = weights, dtype
        self.notes: list[str] = []

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        found = [product for product in products(graph) if product.result.name != names.LOGITS]
        misfits = []
        for product in found:
            k, n = product.weight.shape
            block = k if self.weights == "int8" else next((b for b in BLOCKS if k % b == 0 and n % 2 == 0), None)
            if block is None:
                misfits.append(f"{label(product.node)} ({k}, {n})")
            else:
                self.store(graph, product, block)
        if misfits:
            some = ", ".join(misfits[:NAMED]) + (", ..." if len(misfits) > NAMED else "")
            self.notes.append(
                f"{len(misfits)} of {len(found)} matrices stay in {self.dtype.name.lower()}: int4 takes inputs that "
                f"are a multiple of {BLOCKS[-1]} and outputs that are even in number, not {some}"
            )
        return PassResult(model, modified=len(found) > len(misfits))

    def store(self, graph: ir.Graph, product: Product, block: int) -> None:
        codes, scales = quantize(product.weight, 127 if self.weights == "int8" else 7, block, self.dtype)
        if self.weights == "int8":
            stored = register(graph, f"{product.name}.codes", codes)
            scale, attributes = register(graph, f"{product.name}.scales", scales[0]), {"axis": 1}
        else:
            stored = register(graph, f"{product.name}.codes", codes.astype(ml_dtypes.int4))
            scale = register(graph, f"{product.name}.scales", scales)
            attributes = {"axis": 0, "block_size": block}
        node = ir.node("DequantizeLinear", [stored, scale], attributes, name=f"{product.name}.dequantize")
        weight = product.node.inputs[1]
        node.outputs[0].dtype, node.outputs[0].shape = self.dtype, weight.shape if weight else None
        graph.insert_before(product.node, node)
        product.node.replace_input_with(1, node.outputs[0])
