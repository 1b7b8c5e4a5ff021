"""Attention that no kernel computes fails a build, unless it may become several layers; our own gets its kernels."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from edgeformer.exporter.tensorrt.building import build
from edgeformer.exporter.tensorrt.plugins import variant_of
from edgeformer.exporter.tensorrt.report import build_from_values
from edgeformer.exporter.tensorrt.requests import BuildRequest
from edgeformer.exporter.tensorrt.unfused import allow_unfused
from edgeformer.runtime.errors import BuildError
from edgeformer.runtime.plugins.kernels import Variant


@pytest.fixture
def narrow(tmp_path: Path) -> BuildRequest:
    """A graph of one attention whose heads are 8 wide, for which TensorRT has no kernel."""
    names, dims = ("query", "key", "value"), ["batch", 4, "q_len", 8]
    node = helper.make_node("Attention", list(names), ["context"], name="attend")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, dims) for name in (*names, "context")]
    graph = helper.make_graph([node], "test", values[:3], values[3:])
    path = tmp_path / "encoder.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    shapes = dict.fromkeys(names, ((1, 4, 2, 8), (2, 4, 8, 8), (4, 4, 16, 8)))
    profile = {"batch": (1, 2, 4), "q_len": (2, 8, 16)}
    return BuildRequest("tensorrt_rtx", "encoder", str(path), str(tmp_path / "a.plan"), (shapes,), (profile,), ("8.9",))


def test_an_attention_without_a_kernel_fails_the_build_unless_it_may_become_several_layers(
    narrow: BuildRequest,
) -> None:
    trt = importlib.import_module("tensorrt_rtx")
    with pytest.raises(BuildError, match="attend.*4 heads of 8.*--allow-unfused"):
        build(trt, trt.__version__, narrow, lambda fraction, phase: True)
    assert not Path(narrow.plan).exists()
    allow_unfused(Path(narrow.graph))
    report = build_from_values(build(trt, trt.__version__, narrow, lambda fraction, phase: True).report)
    assert Path(narrow.plan).stat().st_size == report.plan_bytes
    assert (len(report.attentions), report.fused) == (1, 0)


def test_the_kernels_of_our_own_attention_are_those_that_its_nodes_ask_for() -> None:
    attributes = {"scale": 0.125, "num_heads": 8, "num_kv_heads": 2, "window": 5}
    node = ir.node("CachedAttention", [], attributes, domain="edgeformer")
    expected = Variant("CachedAttention", "bfloat16", 64, num_heads=8, num_kv_heads=2, scale=0.125, window=5)
    assert variant_of(node, "bfloat16", 64) == expected
    del attributes["window"]
    source = ir.node("SourceAttention", [], attributes, domain="edgeformer")
    assert variant_of(source, "bfloat16", 64) == dataclasses.replace(expected, operator="SourceAttention", window=0)
