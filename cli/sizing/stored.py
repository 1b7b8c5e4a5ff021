"""Bytes of a model's numbers in each precision of each backend, by the rules that the exporter stores them by.

`exporter.ort_cpu.weight_only`, `tables` and `row_quantized` there, and `exporter.tensorrt.weight_only` are those rules.
They import what a device does not have, so they are said again here, and tests compare the two.
"""

from __future__ import annotations

from typing import Literal

from edgeformer.cli.sizing.shapes import Role, Shape, Weight

BLOCKS = (128, 64, 32)  # numbers that share a scale: the first that divides the inputs
LEAST_ROWS = 1024  # of a table that ONNX Runtime looks up in codes
BITS = {"int8": 8, "int4": 4}
# What a plan holds beside weights: TensorRT for RTX 1.7's plans of encoders are 5 to 7 MB larger, those of decoders,
# which have two profiles, 9 to 19 (docs/sizing.md).
PLAN = {"encoder": 6_000_000, "decoder": 12_000_000}
Use = Literal["product", "table"]


def cache_item(backend: str, precision: str) -> int:
    """Bytes of a number in a cache."""
    return 4 if backend == "ort-cpu" or precision == "fp32" else 2


def weight_bytes(shape: Shape, backend: str, precision: str) -> int:
    """Of all weights as an artifact stores them: ONNX Runtime's graphs share tensors, engines have each their own."""
    total, known = 0, set[tuple[object, Use]]()
    for name, role in shape.roles.items():
        total += other_bytes(role, backend)
        if backend == "tensorrt":
            total += PLAN[name]
            known.clear()
        for weight in role.weights:
            for use in uses(weight, backend, precision):
                if (weight.key, use) not in known:
                    total += bytes_as(use, shape, weight, backend, precision)
                known.add((weight.key, use))
    return total


def read_bytes(shape: Shape, role: Role, backend: str, precision: str) -> int:
    """Of what is read whenever a graph runs: tables are not, but for the few rows that are looked up."""
    products = (bytes_as("product", shape, weight, backend, precision) for weight in role.products)
    return sum(products) + other_bytes(role, backend)


def other_bytes(role: Role, backend: str) -> int:
    return role.others * (2 if backend == "ort-cuda" else 4)


def uses(weight: Weight, backend: str, precision: str) -> tuple[Use, ...]:
    """As what a matrix is stored. A table that is multiplied as well is one tensor where both are stored alike."""
    if weight.multiplied and weight.looked_up:
        alike = backend != "ort-cpu" or precision == "fp32" or (precision == "int8" and table_in_codes(weight))
        return ("product",) if alike else ("product", "table")
    return ("product",) if weight.multiplied else ("table",)


def table_in_codes(weight: Weight) -> bool:
    return weight.n >= LEAST_ROWS and block_of(weight.k) is not None


def bytes_as(use: Use, shape: Shape, weight: Weight, backend: str, precision: str) -> int:
    if backend == "ort-cpu":
        return on_cpu(use, weight, precision)
    if backend == "tensorrt" and use == "product" and not shape.is_head(weight):
        return in_engine(weight, precision)
    return weight.count * (4 if precision == "fp32" else 2)


def on_cpu(use: Use, weight: Weight, precision: str) -> int:
    """float32, codes in blocks with float32 scales, or codes with a scale for each output. Tables keep 8 bits."""
    if precision == "int8-rows" and use == "product":
        return weight.count + 4 * weight.n
    block = block_of(weight.k)
    if precision == "fp32" or block is None or (use == "table" and not table_in_codes(weight)):
        return 4 * weight.count
    bits = BITS[precision] if use == "product" else 8
    return weight.count * bits // 8 + 4 * weight.count // block


def in_engine(weight: Weight, precision: str) -> int:
    """16 bits; 8 with a scale for each output; 4 with one for each block, where both sides are even."""
    if precision == "int8":
        return weight.count + 2 * weight.n
    block = block_of(weight.k)
    if precision == "int4" and block is not None and weight.n % 2 == 0:
        return weight.count // 2 + 2 * weight.count // block
    return weight.count * (4 if precision == "fp32" else 2)


def block_of(k: int) -> int | None:
    return next((block for block in BLOCKS if k % block == 0), None)
