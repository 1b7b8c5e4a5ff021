"""What a build says about itself: `report.json`, one record for each network that was built.

Nothing here needs TensorRT, onnx or torch: a report is read wherever its bundle is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgeformer.runtime.bundle import Limits, parse_limits
from edgeformer.runtime.errors import BundleError

REPORT_VERSION = 1
REPORT, PAGE = "report.json", "report.html"

Shape = tuple["int | str", ...]


@dataclasses.dataclass(frozen=True, slots=True)
class LogLine:
    """A line of TensorRT's log; `severity` is verbose, info, warning, error or internal error."""

    severity: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the network: a dimension is a number, or the name of a symbolic one (`?` where it has none)."""

    name: str
    dtype: str
    shape: Shape


@dataclasses.dataclass(frozen=True, slots=True)
class Attention:
    """An attention of the network, and what became of it.

    Attributes:
        node: name of the ONNX node.
        module: path of the module in the model, where the names of its weights say it; otherwise empty.
        form: `native` (TensorRT's attention layer), `plugin`, or `primitive` (matrix products around a softmax).
        fused: whether one kernel does it all; None where it is not known.
        evidence: how that is known, or why not.
        kernels: the attention kernels that the compiled engine runs for it, where its layers are known.
        query: shape (batch, num_heads, q_len, head_dim).
        key: shape (batch, num_kv_heads, kv_len, head_dim).
        mask: what hides positions, in words: none, boolean or additive with its shape, causal and how it is aligned,
            lengths where those of keys and values are given.
    """

    node: str
    module: str
    form: str
    fused: bool | None
    evidence: str
    kernels: tuple[str, ...]
    dtype: str
    query: Shape
    key: Shape
    mask: str

    @property
    def label(self) -> str:
        return f"{self.module} ({self.node})" if self.module else self.node


@dataclasses.dataclass(frozen=True, slots=True)
class CacheUpdate:
    """A cache that is written in place: `output` shares the memory of `cache`."""

    node: str
    cache: str
    output: str
    dtype: str
    shape: Shape


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the compiled engine where its layers are known, otherwise of the network.

    Attributes:
        kind: TensorRT's word for what it is.
        kernel: the kernel that was chosen, where the engine's layers are known; otherwise empty.
        precision: type of its first output.
        nodes: names of the ONNX nodes that it computes, where they are known.
        milliseconds: time of one run, where a GPU measured it.
    """

    name: str
    kind: str
    kernel: str
    precision: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    nodes: tuple[str, ...] = ()
    milliseconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class BuildReport:
    """What became of one ONNX graph.

    Attributes:
        role: `encoder` or `decoder`.
        compiled: whether `layers` are the compiled engine's, rather than those of the network it was built from.
        weights: bytes of weights by their type.
        plan_bytes: size of the plan.
        memory: bytes by what they are for, such as `build peak` and `activations`, where they are known.
        seconds: how long the build took.
        profiles: least, usual and most of every symbolic dimension, in the engine's order.
        settings: what was asked of the builder, by name.
        versions: packages that took part.
        unused_inputs: what the parser dropped: inputs of the graph, or of nodes, that nothing reads.
        log: lines of TensorRT's log from `warning` up, without repetitions.
    """

    role: str
    attentions: tuple[Attention, ...]
    cache_updates: tuple[CacheUpdate, ...]
    layers: tuple[Layer, ...]
    compiled: bool
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: Mapping[str, int]
    plan_bytes: int
    memory: Mapping[str, int]
    seconds: float
    profiles: tuple[Mapping[str, Limits], ...]
    settings: Mapping[str, str]
    versions: Mapping[str, str]
    unused_inputs: tuple[str, ...]
    log: tuple[LogLine, ...]

    @property
    def fused(self) -> int:
        """How many attentions are known to be fused."""
        return sum(attention.fused is True for attention in self.attentions)

    def with_times(self, milliseconds: Mapping[str, float]) -> BuildReport:
        """The report with the time of each layer of the engine, by its name, as an `IProfiler` gave them."""
        timed = [dataclasses.replace(layer, milliseconds=milliseconds.get(layer.name)) for layer in self.layers]
        return dataclasses.replace(self, layers=tuple(timed))


@dataclasses.dataclass(frozen=True, slots=True)
class ArtifactReport:
    """The reports of an artifact's plans, by role.

    Attributes:
        name: the artifact, such as tensorrt-rtx-fp16.
        compute_capabilities: GPUs that the plans run on, such as 8.9; none where they are for the one that built them.
    """

    name: str
    target: str
    precision: str
    compute_capabilities: tuple[str, ...]
    builds: Mapping[str, BuildReport]

    def to_json(self) -> str:
        values = {"report_version": REPORT_VERSION, **dataclasses.asdict(self)}
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def read_report(folder: Path) -> ArtifactReport:
    """Read the report in an artifact's folder.

    Raises:
        BundleError: there is none, or it is damaged, or written by a newer edgeformer.
    """
    path = folder / REPORT
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        version = values["report_version"]
        if version > REPORT_VERSION:
            reason = f"its version is {version}, this edgeformer reads up to {REPORT_VERSION}: upgrade edgeformer"
            raise BundleError(f"report {path}", [reason])
        return parse_artifact_report(values)
    except OSError as error:
        raise BundleError(f"report {path}", [f"it cannot be read: {error.strerror}"]) from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BundleError(f"report {path}", [f"it is damaged: {type(error).__name__}: {error}"]) from error


def parse_artifact_report(values: Mapping[str, Any]) -> ArtifactReport:
    fields = {name: value for name, value in values.items() if name != "report_version"}
    builds = {role: build_from_values(build) for role, build in values["builds"].items()}
    capabilities = tuple(map(str, values["compute_capabilities"]))
    return ArtifactReport(**{**fields, "compute_capabilities": capabilities, "builds": builds})


def build_from_values(values: Mapping[str, Any]) -> BuildReport:
    """A `BuildReport` from what `dataclasses.asdict` and JSON made of it."""
    profiles = tuple({name: parse_limits(name, limits) for name, limits in p.items()} for p in values["profiles"])
    parsed = {
        "attentions": tuple(parse_attention(item) for item in values["attentions"]),
        "cache_updates": tuple(
            CacheUpdate(**{**item, "shape": tuple(item["shape"])}) for item in values["cache_updates"]
        ),
        "layers": tuple(parse_layer(item) for item in values["layers"]),
        "inputs": parse_tensors(values["inputs"]),
        "outputs": parse_tensors(values["outputs"]),
        "profiles": profiles,
        "unused_inputs": tuple(values["unused_inputs"]),
        "log": tuple(LogLine(**line) for line in values["log"]),
    }
    return BuildReport(**{**values, **parsed})


def parse_attention(values: Mapping[str, Any]) -> Attention:
    return Attention(**{**values, **{name: tuple(values[name]) for name in ("kernels", "query", "key")}})


def parse_layer(values: Mapping[str, Any]) -> Layer:
    tensors = {name: parse_tensors(values[name]) for name in ("inputs", "outputs")}
    return Layer(**{**values, **tensors, "nodes": tuple(values["nodes"])})


def parse_tensors(values: Iterable[Mapping[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(Tensor(**{**item, "shape": tuple(item["shape"])}) for item in values)
