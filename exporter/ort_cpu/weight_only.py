"""Weights in codes of 4 or 8 bits, arithmetic in int8.

A MatMul of a constant becomes `MatMulNBits`. The bias that follows a product moves into the operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

from edgeformer.exporter.ort_cpu.attention import MICROSOFT
from edgeformer.exporter.ort_cpu.block_codes import Codes, Scheme, quantize
from edgeformer.exporter.ort_cpu.matching import Product, products, register, take_over

INT8_ARITHMETIC = 4  # MatMulNBits' accuracy_level: activations are quantized per block on the fly
USUAL_BLOCKS = (128, 64, 32)  # the first that divides: larger blocks are faster

Quantize = Callable[[str, NDArray[np.float32], Scheme], Codes]


def plainly(name: str, weight: NDArray[np.float32], scheme: Scheme) -> Codes:
    """Each weight to its nearest code; nothing is known of the inputs."""
    return quantize(weight, scheme)


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """How the weights of a graph are stored.

    Attributes:
        usual: bits, and block size and symmetry where they were asked for.
        by_name: the bits of those products that get others.
        quantize: makes the codes of a product, by its name.
    """

    bits: int
    block: int | None = None
    symmetric: bool = True
    by_name: Mapping[str, int] = dataclasses.field(default_factory=dict)
    quantize: Quantize = plainly

    def scheme(self, name: str, k: int) -> Scheme | None:
        """Of a product that is k wide; None where no block divides it."""
        blocks = USUAL_BLOCKS if self.block is None else (self.block,)
        block = next((block for block in blocks if k % block == 0), None)
        return None if block is None else Scheme(self.by_name.get(name, self.bits), block, self.symmetric)


class WeightOnly(InPlacePass):
    """Ensures: every MatMul with a constant weight whose input a block divides is a MatMulNBits."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        made: dict[str, Codes] = {}
        for product in products(graph):
            scheme = self.recipe.scheme(product.name, product.weight.shape[0])
            if scheme is not None:
                made[product.name] = self.recipe.quantize(product.name, product.weight, scheme)
                self.rewrite(graph, product, made[product.name])
        if not made and self.recipe.block is not None:
            raise PreconditionError(f"no weight can be stored in blocks of {self.recipe.block}")
        model.opset_imports[MICROSOFT] = 1
        return PassResult(model, modified=bool(made))

    def rewrite(self, graph: ir.Graph, product: Product, codes: Codes) -> None:
        k, n = product.weight.shape
        points = codes.packed_zero_points()
        inputs: list[ir.Value | None] = [
            product.x,
            register(graph, f"{product.name}.codes", codes.packed()),
            register(graph, f"{product.name}.scales", codes.scales),
        ]
        if points is not None:
            inputs.append(register(graph, f"{product.name}.zero_points", points))
        if product.bias is not None:
            inputs += [*[None] * (5 - len(inputs)), product.bias]
        attributes = {"K": k, "N": n, "bits": codes.scheme.bits, "block_size": codes.scheme.block,
                      "accuracy_level": INT8_ARITHMETIC}  # fmt: skip
        new = ir.node("MatMulNBits", inputs, attributes, domain=MICROSOFT, name=product.node.name)
        graph.insert_before(product.node, new)
        take_over(product.result, new.outputs[0])
