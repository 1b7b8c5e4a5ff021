"""The likeliest token and its log-probability, computed where the logits are.

A greedy step then brings one id and one number a row to the host, and leaves the logits on the device.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult, PreconditionError

from edgeformer.exporter.ort_cpu.matching import register
from edgeformer.runtime import names


class NextTokens(InPlacePass):
    """Requires: float32 logits. Ensures: outputs next_ids and next_log_probs, (batch, n) each.

    The largest logit's log-probability is max - log(sum(exp(logits))) = -log(sum(exp(logits - max))), which cannot
    overflow; among equal logits the first wins, as in NumPy and PyTorch.
    """

    def call(self, model: ir.Model) -> PassResult:
        graph = model.graph
        logits = next((value for value in graph.outputs if value.name == names.LOGITS), None)
        if logits is None:
            return PassResult(model, modified=False)
        if logits.dtype != ir.DataType.FLOAT or logits.shape is None:
            raise PreconditionError(f"{names.LOGITS} is {logits.dtype} {logits.shape}, expected float32 of known shape")
        last = register(graph, "vocabulary_axis", np.array([-1], np.int64))
        tape = ir.tape.Tape()
        ids = tape.op("ArgMax", [logits], {"axis": -1, "keepdims": 0})
        below = tape.op("Sub", [logits, tape.op("ReduceMax", [logits, last], {"keepdims": 1})])
        total = tape.op("ReduceSum", [tape.op("Exp", [below]), last], {"keepdims": 0})
        log_probs = tape.op("Neg", [tape.op("Log", [total])])
        graph.extend(tape.nodes)
        for value, name, dtype in (
            (ids, names.NEXT_IDS, ir.DataType.INT64),
            (log_probs, names.NEXT_LOG_PROBS, ir.DataType.FLOAT),
        ):
            value.name, value.dtype, value.shape = name, dtype, ir.Shape(tuple(logits.shape)[:-1])
            graph.outputs.append(value)
        return PassResult(model, modified=True)
