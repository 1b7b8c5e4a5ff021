"""Graphs computed with our own operators, and with the functions that they carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
from numpy.typing import NDArray

from edgeformer.runtime import native

Array = NDArray[Any]
Arrays = dict[str, Array]
MICROSOFT = "com.microsoft"


def session(model: ir.Model, own: bool, threads: int = 2) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    if own:
        native.register(options)
    return onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options, ["CPUExecutionProvider"])


def run(model: ir.Model, given: Arrays, own: bool) -> list[NDArray[np.float32]]:
    found: list[NDArray[np.float32]] = session(model, own).run(None, given)
    return found
