"""The caches' length as a number: TensorRT updates a cache in place only where its length is fixed."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

CAPACITY = "capacity"


class StaticCapacity(InPlacePass):
    """Ensures: no input or output has a dimension called capacity."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def call(self, model: ir.Model) -> PassResult:
        if self.capacity < 1:
            raise PreconditionError(f"capacity is {self.capacity}, expected at least 1")
        modified = False
        for value in (*model.graph.inputs, *model.graph.outputs, *(v for n in model.graph for v in n.outputs)):
            if value.shape is None:
                continue
            dims = [dim.value if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape]
            if CAPACITY in dims:
                value.shape = ir.Shape([self.capacity if dim == CAPACITY else dim for dim in dims])
                modified = True
        return PassResult(model, modified=modified)
