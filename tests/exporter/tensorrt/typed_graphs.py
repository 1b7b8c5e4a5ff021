"""Typed graphs of the tiny bundle, and two ways to compute them that know nothing of TensorRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from edgeformer.exporter.external_weights import load_graph
from edgeformer.exporter.tensorrt.graphs import rewrite

Arrays = dict[str, NDArray[Any]]
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
FORMS = ("native", "plugin", "primitive")


def typed(bundle: Path, role: str, **changes: Any) -> ir.Model:
    """A graph of the bundle, rewritten: float16, native and without static capacity where nothing else is asked for."""
    model = load_graph(bundle / "onnx" / f"{role}.onnx")
    asked: dict[str, Any] = {"dtype": "float16", "weights": None, "attention": "native", "capacity": None, **changes}
    rewrite(model, role, **asked)
    return model


def attend(query: Any, key: Any, value: Any, seen: Any, scale: float) -> Any:
    """The mathematics of the operators' description, in float64, one row and head at a time."""
    context = np.zeros(query.shape)
    group = query.shape[1] // key.shape[1]
    for row, head, t in np.ndindex(*query.shape[:3]):
        at = np.flatnonzero(seen(row, t))
        if len(at):
            keys, values = (array[row, head // group, at].astype(np.float64) for array in (key, value))
            scores = keys @ query[row, head, t].astype(np.float64) * scale
            weights = np.exp(scores - scores.max())
            context[row, head, t] = weights @ values / weights.sum()
    return context.astype(query.dtype)


class CachedAttention(OpRun):
    op_domain = "edgeformer"

    def _run(  # type: ignore[no-untyped-def]
        self, query, key, value, past_key, past_value, cache_lengths,
        scale=None, num_heads=None, num_kv_heads=None, window=None, plugin_namespace=None, plugin_version=None,
    ):  # fmt: skip
        assert (query.shape[1], key.shape[1]) == (num_heads, num_kv_heads)
        assert cache_lengths.dtype == np.int32
        assert (plugin_namespace, plugin_version, window) == ("edgeformer", "1", 0)
        present = [past_key.copy(), past_value.copy()]
        for cache, new in zip(present, (key, value), strict=True):
            for row, t in np.ndindex(query.shape[0], query.shape[2]):
                if cache_lengths[row] + t < cache.shape[2]:
                    cache[row, :, cache_lengths[row] + t] = new[row, :, t]
        positions = np.arange(past_key.shape[2])
        context = attend(query, *present, lambda row, t: positions <= cache_lengths[row] + t, scale)
        return (context, *present)


class SourceAttention(OpRun):
    op_domain = "edgeformer"

    def _run(  # type: ignore[no-untyped-def]
        self, query, key, value, source_lengths,
        scale=None, num_heads=None, num_kv_heads=None, plugin_namespace=None, plugin_version=None,
    ):  # fmt: skip
        assert (query.shape[1], key.shape[1]) == (num_heads, num_kv_heads)
        assert source_lengths.dtype == np.int32
        positions = np.arange(key.shape[2])
        return (attend(query, key, value, lambda row, t: positions < source_lengths[row], scale),)


def evaluate(model: ir.Model, given: Arrays, dtype: str = "float32") -> Arrays:
    """Outputs by ONNX's own reference implementation, in the very types that the graph asks for."""
    evaluator = ReferenceEvaluator(ir.to_proto(model), new_ops=[CachedAttention, SourceAttention])
    taken = {
        name: given[name].astype(NUMPY[dtype]) if given[name].dtype == np.float32 else given[name]
        for name in evaluator.input_names
    }
    return dict(zip(evaluator.output_names, evaluator.run(None, taken), strict=True))


def check(model: ir.Model) -> None:
    """Every operator gets the types that its definition allows, and no two types at once."""
    onnx.checker.check_model(ir.to_proto(model), full_check="edgeformer" not in model.opset_imports)
