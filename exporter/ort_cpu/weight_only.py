"""Weights in 8 bits, arithmetic in int8: constant MatMul becomes `MatMulNBits`.

Each output's weights are cut into blocks along the input; a block of w becomes round(w / scale) + 128 with
scale = max|w| / 127, so that zero stays zero. The bias that follows moves into the operator.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.matching import constant
from edgeformer.exporter.ort_cpu.projections import bias_after, register

BITS = 8
BLOCKS = (128, 64, 32)  # the first that divides: larger blocks are faster, and 8 bits lose little by them
INT8_ARITHMETIC = 4  # MatMulNBits' accuracy_level: activations are quantized per block on the fly


def quantize(weight: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
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
        modified = False
        for node in list(model.graph):
            weight = constant(node.inputs[1]) if node.op_type == "MatMul" else None
            if weight is None or len(weight.shape) != 2 or weight.shape[0] % BLOCKS[-1]:
                continue
            self.rewrite(model.graph, node, weight.numpy())
            modified = True
        model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=modified)

    def rewrite(self, graph: ir.Graph, node: ir.Node, weight: np.ndarray) -> None:
        k, n = weight.shape
        block = next(block for block in BLOCKS if k % block == 0)
        codes, scales = quantize(weight, block)
        name = node.inputs[1].name
        inputs = [node.inputs[0], register(graph, f"{name}.codes", codes), register(graph, f"{name}.scales", scales)]
        add = bias_after(node)
        if add is not None:
            inputs += [None, None, add.inputs[1]]
        replaced = (add or node).outputs[0]
        attributes = {"K": k, "N": n, "bits": BITS, "block_size": block, "accuracy_level": INT8_ARITHMETIC}
        new = ir.node("MatMulNBits", inputs, attributes, domain=MICROSOFT, name=node.name)
        graph.insert_before(node, new)
        new.outputs[0].type, new.outputs[0].shape = replaced.type, replaced.shape
        if replaced.is_graph_output():
            new.outputs[0].name, replaced.name = replaced.name, f"{replaced.name}.before"
        replaced.replace_all_uses_with(new.outputs[0], replace_graph_outputs=True)
