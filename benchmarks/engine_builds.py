"""Builds engines of every family, and of two larger models in every precision, with no GPU at hand.

    python benchmarks/engine_builds.py [--json FILE] [--markdown FILE] [--models g2p,llama] [--precisions fp16,int4]

The models are the example that spells words' sounds, the base model of "Attention Is All You Need" (6 + 6 layers of
512, 8 heads, 37000 tokens) and a small one of each family (`family_models`), the latter two with random weights. The
first two are built in every precision, for one GPU and for the portable set; the families for the portable set, in the
first of the precisions. The program fails where an attention is not fused, where the parser dropped an input, or where
the report does not read back. Built, not run: what an engine computes is checked on a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from family_models import CONFIGS, family_model

from edgeformer.exporter import encoder_graphs, onnx_graphs
from edgeformer.exporter.exporting import export_graphs
from edgeformer.exporter.external_weights import load_graph, save_graphs
from edgeformer.exporter.targets import choose_target
from edgeformer.exporter.tensorrt.graphs import rewrite
from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.exporter.tensorrt.preparing import TYPES, input_dims
from edgeformer.exporter.tensorrt.processes import run_build
from edgeformer.exporter.tensorrt.profiles import Solved, input_shapes, solve
from edgeformer.exporter.tensorrt.report import REPORT, ArtifactReport, BuildReport, build_from_values, read_report
from edgeformer.exporter.tensorrt.requests import BuildRequest
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.models.configs.paper import TransformerConfig
from edgeformer.models.protocols import kind_of
from edgeformer.models.transformer import Transformer
from edgeformer.runtime.bundle import ROLES, Kind
from edgeformer.runtime.errors import BuildError
from edgeformer.runtime.names import Dims

TARGET, PRECISIONS, ONE_GPU = "tensorrt-rtx", ("fp16", "bf16", "int8", "int4"), ("8.9",)
MODELS = ("g2p", "base", *CONFIGS)
G2P = Path(__file__).parents[1] / "examples" / "g2p" / "checkpoint"
BASE = TransformerConfig(vocab_size=37_000)  # the defaults are the paper's


@dataclasses.dataclass(frozen=True, slots=True)
class Typed:
    """Graphs of one model in one precision, on disk."""

    model: str
    kind: Kind
    precision: str
    folder: Path
    solved: Solved
    inputs: Mapping[str, Mapping[str, Dims]]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What a build of a model's graphs gave; sizes in bytes, the time in seconds over all of them.

    Attributes:
        masks: how attentions hide positions: boolean, or additive.
        reason: why an engine was not built, or an attention is not fused; empty where all went well.
    """

    model: str
    kind: Kind
    precision: str
    compute_capabilities: tuple[str, ...]
    attentions: int = 0
    fused: int = 0
    unused_inputs: int = 0
    plans: int = 0
    peak: int = 0
    seconds: float = 0
    masks: tuple[str, ...] = ()
    reason: str = ""

    @property
    def good(self) -> bool:
        return self.fused == self.attentions > 0 and self.unused_inputs == 0 and not self.reason


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--markdown", type=Path, help="write a table of the families here")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    arguments = parser.parse_args()
    rows, seconds = build_all(arguments.models.split(","), arguments.precisions.split(","))
    print_rows(rows, seconds)
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(rows), encoding="utf-8")
    if bad := [row for row in rows if not row.good]:
        sys.exit(f"{len(bad)} of {len(rows)} artifacts have attentions that are not fused, or inputs that were dropped")


def build_all(models: list[str], precisions: list[str]) -> tuple[list[Row], float]:
    """Builds while the next graphs are exported: each build is a process that uses one core."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="edgeformer-") as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        building = [
            pool.submit(build, typed, portable)
            for typed in typed_graphs(Path(name), models, precisions)
            for portable in ((True,) if typed.model in CONFIGS else (False, True))
        ]
        return [build.result() for build in building], time.perf_counter() - begin


def typed_graphs(folder: Path, models: list[str], precisions: list[str]) -> Iterator[Typed]:
    """The graphs of each model, exported once, in each precision."""
    for name in models:
        model = make_model(name)
        kind, portable = kind_of(model), folder / name
        sizes = encoder_graphs.sizes_of_encoder(model) if kind == "encoder" else onnx_graphs.sizes_of(model)
        portable.mkdir()
        save_graphs(portable, export_graphs(model, lambda part: None))
        solved = solve(kind, sizes, EngineOptions())
        for precision in precisions[:1] if name in CONFIGS else precisions:
            (dtype, weights), here = TYPES[precision], folder / f"{name}-{precision}"
            graphs = {role: load_graph(portable / f"{role}.onnx") for role in ROLES[kind]}
            for role, graph in graphs.items():
                capacity = solved.capacity if role == "decoder" else None
                rewrite(graph, role, dtype=dtype, weights=weights, attention="native", capacity=capacity)
            here.mkdir()
            save_graphs(here, graphs)
            inputs = {role: input_dims(graph) for role, graph in graphs.items()}
            yield Typed(name, kind, precision, here, solved, inputs)


def make_model(name: str) -> Any:
    if name == "g2p":
        return load_checkpoint(G2P)
    if name == "base":
        return Transformer(BASE).eval()
    if name not in CONFIGS:
        sys.exit(f"there is no model {name!r}; known: {', '.join(MODELS)}")
    return family_model(name)


def build(typed: Typed, portable: bool) -> Row:
    """The engines of a model, and what their report says once it is read back."""
    wanted = () if portable else ONE_GPU
    choice = choose_target(TARGET, typed.precision, compute_capabilities=wanted)
    folder = typed.folder / ("portable" if portable else "one")
    folder.mkdir()
    try:
        builds = {role: build_role(typed, role, folder, choice.compute_capabilities) for role in typed.inputs}
    except BuildError as error:
        return Row(typed.model, typed.kind, typed.precision, choice.compute_capabilities, reason=str(error))
    report = ArtifactReport(typed.model, TARGET, typed.precision, choice.compute_capabilities, builds)
    (folder / REPORT).write_text(report.to_json(), encoding="utf-8")
    read = read_report(folder)
    if read != report:
        sys.exit(f"the report of {typed.model} in {typed.precision} does not read back as it was written")
    return row_of(read, typed.kind)


def build_role(typed: Typed, role: str, folder: Path, compute_capabilities: tuple[str, ...]) -> BuildReport:
    profiles = typed.solved.profiles[role]
    request = BuildRequest(
        module="tensorrt_rtx",
        role=role,
        graph=str(typed.folder / f"{role}.onnx"),
        plan=str(folder / f"{role}.plan"),
        shapes=tuple(input_shapes(typed.inputs[role], profiles)),
        profiles=profiles,
        compute_capabilities=compute_capabilities,
    )
    report = build_from_values(run_build(request, folder).report)
    Path(request.plan).unlink()
    return report


def row_of(report: ArtifactReport, kind: Kind) -> Row:
    builds = report.builds.values()
    attentions = [attention for build in builds for attention in build.attentions]
    unfused = [f"{attention.label}: {attention.evidence}" for attention in attentions if attention.fused is not True]
    return Row(
        model=report.name,
        kind=kind,
        precision=report.precision,
        compute_capabilities=report.compute_capabilities,
        attentions=len(attentions),
        fused=sum(build.fused for build in builds),
        unused_inputs=sum(len(build.unused_inputs) for build in builds),
        plans=sum(build.plan_bytes for build in builds),
        peak=max(build.memory["build peak"] for build in builds),
        seconds=sum(build.seconds for build in builds),
        masks=tuple(dict.fromkeys(attention.mask.split()[0] for attention in attentions)),
        reason="; ".join(unfused),
    )


def print_rows(rows: list[Row], seconds: float) -> None:
    print(f"{'model':11}{'precision':11}{'fused':>8}{'plans':>10}{'peak':>10}{'time':>9}  GPUs")
    for row in rows:
        print(
            f"{row.model:11}{row.precision:11}{row.fused:>4}/{row.attentions:<3}{row.plans / 1e6:>7.1f} MB"
            f"{row.peak / 1e9:>7.2f} GB{row.seconds:>7.1f} s  {', '.join(row.compute_capabilities)}"
        )
        if row.reason:
            print(f"  {row.reason}")
    print(f"{len(rows)} artifacts, {seconds:.0f} s on {os.cpu_count()} cores")


def markdown(rows: list[Row]) -> str:
    """A table of the families: what was built, and how many of its attentions are one kernel each."""
    lines = ["| family | kind | RTX engine | attentions fused | masks | why not |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row.model in CONFIGS:
            built = row.precision if row.attentions else "no"
            fused = f"{row.fused} of {row.attentions}" if row.attentions else "-"
            cells = (row.model, row.kind, built, fused, ", ".join(row.masks) or "-", row.reason or "-")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
