"""Attention that may fall back to several layers where no kernel computes it."""

from __future__ import annotations

from pathlib import Path

import onnx

DECOMPOSABLE = "TRT_decomposable"  # attribute of ONNX Attention that TensorRT's parser reads


def allow_unfused(path: Path) -> None:
    """Mark every attention of a graph on disk; the weights beside it are not read."""
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        if node.op_type == "Attention":
            node.attribute.append(onnx.helper.make_attribute(DECOMPOSABLE, 1))
    onnx.save(model, path)
