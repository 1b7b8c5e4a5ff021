"""Typed graphs are compared with PyTorch before an engine is built of them, and what is wrong with them is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from edgeformer.exporter.tensorrt.verification import check_typed
from edgeformer.runtime.backends import older
from edgeformer.runtime.bundle import Bundle, open_bundle

from ..graphs import only
from .typed_graphs import typed


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    if older(onnxruntime.__version__, "1.25"):
        pytest.skip("graphs of opset 24 need onnxruntime 1.25")
    return open_bundle(tiny_bundle)


def graphs(bundle: Bundle, dtype: str, attention: str, weights: str | None = None) -> dict[str, ir.Model]:
    changes = {"dtype": dtype, "attention": attention, "weights": weights}
    return {
        "encoder": typed(bundle.folder, "encoder", **changes),
        "decoder": typed(bundle.folder, "decoder", **changes, capacity=32),
    }


def failed(bundle: Bundle, models: dict[str, ir.Model], precision: str) -> list[str]:
    return [check.name for check in check_typed(bundle, models, precision, threads=1) if not check.passed]


@pytest.mark.parametrize(
    ("precision", "dtype", "attention", "weights"),
    [
        ("fp32", "float32", "native", None),
        ("fp32", "float32", "plugin", None),
        ("fp32", "float32", "primitive", None),
        ("fp16", "float16", "native", None),
        ("bf16", "bfloat16", "plugin", None),
        ("int8", "float16", "primitive", "int8"),
    ],
)
def test_typed_graphs_give_pytorchs_tokens(
    bundle: Bundle, precision: str, dtype: str, attention: str, weights: str | None
) -> None:
    checks = check_typed(bundle, graphs(bundle, dtype, attention, weights), precision, threads=1)
    assert [check.name for check in checks if not check.passed] == []
    if precision == "fp32":
        number = len(bundle.manifest.golden)
        assert checks[0].detail == f"{number} of {number} samples token for token"


def test_caches_that_are_mixed_up_are_noticed(bundle: Bundle) -> None:
    models = graphs(bundle, "float32", "plugin")
    node = only(models["decoder"], "CachedAttention")[0]
    key, value = node.inputs[1], node.inputs[2]
    node.replace_input_with(1, value)
    node.replace_input_with(2, key)
    assert "greedy equals PyTorch" in failed(bundle, models, "fp32")


def test_a_weight_that_lost_its_scale_is_noticed(bundle: Bundle) -> None:
    models = graphs(bundle, "float16", "native", "int8")
    scales = only(models["encoder"], "DequantizeLinear")[-1].inputs[1]
    scales.const_value = ir.tensor(scales.const_value.numpy() * np.float16(4), name=scales.name)
    assert "log-probabilities equal PyTorch's" in failed(bundle, models, "int8")
