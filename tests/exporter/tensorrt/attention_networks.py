"""Networks of attentions alone, built with the real TensorRT for RTX: some tenths of a second each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgeformer.exporter.tensorrt.describing import describe
from edgeformer.exporter.tensorrt.fusion import explain_failure
from edgeformer.exporter.tensorrt.report import Attention, BuildReport, LogLine

trt = pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

DTYPES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float32": TensorProto.FLOAT}
PREFILL = {"batch": (1, 1, 2), "q_len": (1, 8, 16), "kv_len": (1, 16, 32)}
DECODE = {**PREFILL, "q_len": (1, 1, 1)}


@dataclasses.dataclass(frozen=True)
class Spec:
    """An attention node: its name is `attend_{i}`, its query is projected by `layers.{i}.attention.query`."""

    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 64
    dtype: str = "float16"
    mask: str | None = None
    causal: bool = False
    may_fall_apart: bool = False
    lengths: bool = False


def attention_graph(*specs: Spec) -> onnx.ModelProto:
    nodes, inputs, outputs, weights = [], [], [], []
    for i, spec in enumerate(specs):
        dtype = DTYPES[spec.dtype]
        shapes = {
            "query": (dtype, ["batch", spec.heads, "q_len", spec.head_dim]),
            "key": (dtype, ["batch", spec.kv_heads, "kv_len", spec.head_dim]),
            "value": (dtype, ["batch", spec.kv_heads, "kv_len", spec.head_dim]),
        }
        if spec.mask == "boolean":
            shapes["mask"] = (TensorProto.BOOL, ["batch", 1, "q_len", "kv_len"])
        if spec.mask == "additive":
            shapes["mask"] = (dtype, ["batch", spec.heads, "q_len", "kv_len"])
        if spec.lengths:
            shapes["lengths"] = (TensorProto.INT64, ["batch"])
        inputs += [helper.make_tensor_value_info(f"{name}_{i}", *given) for name, given in shapes.items()]
        bias = f"model.layers.{i}.attention.query.bias"
        weights.append(helper.make_tensor(bias, dtype, [spec.head_dim], [0.5] * spec.head_dim))
        nodes.append(helper.make_node("Add", [f"query_{i}", bias], [f"biased_{i}"], name=f"bias_{i}"))
        taken = [f"biased_{i}", f"key_{i}", f"value_{i}", f"mask_{i}" if spec.mask else ""]
        taken += ["", "", f"lengths_{i}"] if spec.lengths else []
        attributes = {"is_causal": spec.causal, "TRT_decomposable": spec.may_fall_apart}
        given = {name: 1 for name, value in attributes.items() if value}
        nodes.append(helper.make_node("Attention", taken, [f"context_{i}"], name=f"attend_{i}", **given))
        outputs.append(helper.make_tensor_value_info(f"context_{i}", *shapes["query"]))
    return model_of(nodes, inputs, outputs, weights)


def model_of(nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [*weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])


class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
    """Keeps every line. The library takes one logger a process, so all builds share this one."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.lines: list[LogLine] = []

    def log(self, severity: Any, message: str) -> None:
        self.lines.append(LogLine(str(severity).rpartition(".")[2].lower().replace("_", " "), message))


LOGGER = Logger()


@dataclasses.dataclass
class Build:
    """A network, and its plan where it could be built."""

    path: Path
    network: Any
    plan: Any
    capabilities: tuple[str, ...]
    profiles: Sequence[dict[str, tuple[int, int, int]]]
    log: list[LogLine]
    alive: Any  # what the network needs as long as it is looked at

    def report(self, *, quietly: bool = False) -> BuildReport:
        """What is said of it; `quietly`: as if the log had told nothing of the engine."""
        assert self.plan is not None, [line for line in self.log if "error" in line.severity]
        return describe(
            trt,
            self.network,
            self.path,
            role="decoder",
            log=[line for line in self.log if not quietly or line.severity != "verbose"],
            seconds=1.5,
            plan_bytes=self.plan.nbytes,
            peak_memory=10**9,
            profiles=[{"batch": (1, 1, 2)}],
            settings={"flags": "none"},
            versions={"tensorrt_rtx": trt.__version__},
        )

    def attentions(self) -> tuple[Attention, ...]:
        return self.report().attentions

    def explanation(self) -> str | None:
        assert self.plan is None
        return explain_failure(trt, self.network, self.path, self.log, self.capabilities, self.profiles)


def build(
    folder: Path,
    model: onnx.ModelProto,
    *,
    profiles: Sequence[dict[str, tuple[int, int, int]]] = (PREFILL,),
    capabilities: tuple[str, ...] = ("8.9",),
) -> Build:
    path = folder / "graph.onnx"
    onnx.save(model, path)
    LOGGER.lines.clear()
    builder = trt.Builder(LOGGER)
    network = builder.create_network()
    parser = trt.OnnxParser(network, LOGGER)
    assert parser.parse_from_file(str(path)), [parser.get_error(i).desc() for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    for limits in profiles:
        profile = builder.create_optimization_profile()
        for value in model.graph.input:
            dims = value.type.tensor_type.shape.dim
            each = [limits.get(dim.dim_param, (dim.dim_value,) * 3) for dim in dims]
            profile.set_shape(value.name, *zip(*each, strict=True))
        config.add_optimization_profile(profile)
    config.num_compute_capabilities = len(capabilities)
    for i, name in enumerate(capabilities):
        config.set_compute_capability(trt.ComputeCapability.__members__[f"SM{name.replace('.', '')}"], i)
    plan = builder.build_serialized_network(network, config)
    return Build(path, network, plan, capabilities, profiles, [*LOGGER.lines], (builder, parser))
