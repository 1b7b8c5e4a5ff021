"""Weights in 8 bits, arithmetic in int8: constant MatMul becomes `MatMulNBits`.

Each output's weights are cut into blocks along the input; a block of w becomes round(w / scale) + 128 with
scale = max|w| / 127, so that zero stays zero. The bias that follows moves into the operator.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.matching import Product, products, register, take_over

BITS = 8
BLOCKS = (128, 64, 32)  # the first that divides: larger blocks are faster, and 8 bits lose little by them
INT8_ARITHMETIC = 4  # MatMulNBits' accuracy_level: activations are quantized per block on the fly


def quantize(weight: NDArray[np.float32], block: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Symmetric 8-bit codes and scales of a weight.

    Args:
        weight: float32 (k, n), k a multiple of block.

    Returns:
        uint8 (n, k / block, block) codes around 128, and float32 (n, k / block) scales.
    """
    k, n = weight.shape
    blocks = weight.T.reshape(n, k // block, block)
    scales = np.abs(blocks).max(-1) / 127
    safe = np.where(scales == 0, 1, scales)
    codes = np.clip(np.rint(blocks / safe[..., None]) + 128, 1, 255).astype(np.uint8)
    return codes, scales.astype(np.float32)


class WeightOnly8Bit(InPlacePass):
    """Ensures: every MatMul with a constant weight whose input is a multiple of 32 wide is a MatMulNBits."""

    def call(self, model: ir.Model) -> PassResult:
        fitting = [product for product in products(model.graph) if product.weight.shape[0] % BLOCKS[-1] == 0]
        for product in fitting:
            self.rewrite(model.graph, product)
        model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=bool(fitting))

    def rewrite(self, graph: ir.Graph, product: Product) -> None:
        k, n = product.weight.shape
        block = next(block for block in BLOCKS if k % block == 0)
        codes, scales = quantize(product.weight, block)
        weight = register(graph, f"{product.name}.codes", codes)
        inputs: list[ir.Value | None] = [product.x, weight, register(graph, f"{product.name}.scales", scales)]
        if product.bias is not None:
            inputs += [None, None, product.bias]
        attributes = {"K": k, "N": n, "bits": BITS, "block_size": block, "accuracy_level": INT8_ARITHMETIC}
        new = ir.node("MatMulNBits", inputs, attributes, domain=MICROSOFT, name=product.node.name)
        graph.insert_before(product.node, new)
        take_over(product.result, new.outputs[0])
