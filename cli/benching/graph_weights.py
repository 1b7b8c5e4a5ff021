"""How much weight an ONNX graph holds, from the file alone: a device has no onnx to ask.

Only what is needed of the format is read: https://onnx.ai/onnx/repo-docs/IR.html and onnx.proto.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

from edgeformer.runtime.protobuf import fields, varints

GRAPH, NODE, INITIALIZER = 7, 1, 5  # fields of ModelProto and GraphProto
NODE_INPUT, NODE_TYPE = 1, 4
DIMS, DATA_TYPE, NAME = 1, 2, 8  # of TensorProto
# Bytes of an element by TensorProto's data type; the last ones are two to a byte.
ITEM_BYTES = {
    1: 4.0, 2: 1.0, 3: 1.0, 4: 2.0, 5: 2.0, 6: 4.0, 7: 8.0, 9: 1.0, 10: 2.0, 11: 8.0, 12: 4.0, 13: 8.0, 16: 2.0,
    17: 1.0, 18: 1.0, 19: 1.0, 20: 1.0, 21: 0.5, 22: 0.5, 23: 0.5,
}  # fmt: skip
WIDENING = "Cast"  # a matrix that is stored in 16 bits and computed in float32
LOOKUPS = ("Gather", "GatherBlockQuantized")

Field = tuple[int, "int | memoryview"]


@dataclasses.dataclass(frozen=True, slots=True)
class Weights:
    """Of what a graph computes with; tables that are only looked up in are left out, since few of their rows are read.

    Attributes:
        bytes: of all tensors.
        count: elements of matrices, each of which is multiplied and added once for every token.
        head: those of `count` in matrices with a row or column for each token of the vocabulary.
    """

    bytes: int
    count: int
    head: int


def weights_of(path: Path, vocab_size: int) -> Weights:
    """Read a graph's sizes; its weights may lie in another file.

    Raises:
        ValueError: it is not ONNX.
    """
    graph = [value for field, value in fields(memoryview(path.read_bytes())) if field == GRAPH]
    total, count, head = 0.0, 0, 0
    computed, widened = set(taken(graph, other_than=LOOKUPS)), set(taken(graph, by=WIDENING))
    for part in graph:
        for dims, data_type, name in initializers(part):
            if name not in computed:
                continue
            elements = math.prod(dims)
            total += elements * (4.0 if name in widened else ITEM_BYTES.get(data_type, 4.0))
            if len(dims) > 1:
                count += elements
                head += elements if vocab_size in dims else 0
    return Weights(int(total), count, head)


def taken(graph: list[int | memoryview], *, by: str = "", other_than: tuple[str, ...] = ()) -> Iterator[str]:
    """Names that nodes take: those of one operator, or of all; other than as the table of a lookup."""
    for part in graph:
        for field, node in parts(part):
            if field != NODE:
                continue
            found = list(parts(node))
            inputs = [text(value) for number, value in found if number == NODE_INPUT]
            kind = next((text(value) for number, value in found if number == NODE_TYPE), "")
            if kind == by or not by:
                yield from inputs[1:] if kind in other_than else inputs


def initializers(part: int | memoryview) -> Iterator[tuple[list[int], int, str]]:
    for field, tensor in parts(part):
        if field != INITIALIZER:
            continue
        dims, data_type, name = list[int](), 0, ""
        for number, value in parts(tensor):
            if number == DIMS:
                dims += [value] if isinstance(value, int) else list(varints(value))
            elif number == DATA_TYPE and isinstance(value, int):
                data_type = value
            elif number == NAME:
                name = text(value)
        yield dims, data_type, name


def text(value: int | memoryview) -> str:
    return "" if isinstance(value, int) else bytes(value).decode("utf-8", "replace")


def parts(message: int | memoryview) -> Iterator[Field]:
    """The fields of a message inside another one.

    Raises:
        ValueError: it is none.
    """
    if isinstance(message, int):
        raise ValueError("expected a message, found a number")
    return fields(message)
