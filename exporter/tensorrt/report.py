"""What a build says about itself: `report.json`, one record for each network that was built.

Nothing here needs TensorRT, onnx or torch: a report is read wherever its bundle is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeformer.runtime.bundle import Limits
from edgeformer.runtime.errors import BundleError

REPORT_VERSION = 1
REPORT = "report.json"

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
        fused: whether one kernel does it all; None where only an engine that a GPU has loaded could tell.
        evidence: how that is known, or why not.
        query: shape (batch, num_heads, q_len, head_dim).
        key: shape (batch, num_kv_heads, kv_len, head_dim).
        mask: what hides positions: `none`, `boolean (...)` or `additive (...)` with its shape, `upper-left causal`,
            `lower-right causal`, each with `and lengths` where key and value lengths are given.
    """

    node: str
    module: str
    form: str
    fused: bool | None
    evidence: str
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
    """A layer of the network, or of the engine where one could be inspected.

    Attributes:
        precision: type of its first output that is a number with a fraction, otherwise of its first output.
        milliseconds: time of one run, where a GPU measured it.
    """

    name: str
    kind: str
    precision: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    milliseconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class BuildReport:
    """What became of one ONNX graph.

    Attributes:
        role: `encoder` or `decoder`.
        inspected: whether `layers` are the engine's, rather than those of the network that it was built from.
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
    inspected: bool
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


@dataclasses.dataclass(frozen=True, slots=True)
class ArtifactReport:
    """The reports of an artifact's plans.

    Attributes:
        name: the artifact, such as tensorrt-rtx-fp16.
        builds: a report for each role.
    """

    name: str
    target: str
    precision: str
    compute_capabilities: tuple[str, ...]
    builds: Mapping[str, BuildReport]

    def to_json(self) -> str:
        return json.dumps({"report_version": REPORT_VERSION, **dataclasses.asdict(self)}, indent=1) + "\n"


def from_json(text: str) -> ArtifactReport:
    """Read what `ArtifactReport.to_json` wrote.

    Raises:
        ValueError, KeyError or TypeError: the text is something else.
    """
    raise NotImplementedError


def build_from_values(values: Mapping[str, Any]) -> BuildReport:
    """A `BuildReport` from what `dataclasses.asdict` and JSON made of it."""
    raise NotImplementedError


def read_report(folder: Path) -> ArtifactReport:
    """Read the report of an artifact's folder.

    Raises:
        BundleError: there is none, or it is damaged, or written by a newer edgeformer.
    """
    raise BundleError(f"report {folder / REPORT}", ["it is missing"])
