"""Inputs that a rewritten graph reads no more."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from edgeformer.runtime import names

COMPUTED_BY_THE_CALLER = {names.CACHE_LENGTHS, names.POSITIONS}


class UnusedInputs(InPlacePass):
    """Ensures: lengths and positions are inputs only where something reads them."""

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        unused = [value for value in graph.inputs if value.name in COMPUTED_BY_THE_CALLER and not list(value.uses())]
        for value in unused:
            graph.inputs.remove(value)
        return PassResult(model, modified=bool(unused))
