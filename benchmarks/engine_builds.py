"""Builds engines of two models in every precision, for one GPU and for the portable set, with no GPU at hand.

    python benchmarks/engine_builds.py [--json FILE] [--models g2p,base] [--precisions fp16,int4]

The models are the example that spells words' sounds, and the base model of "Attention Is All You Need" (6 + 6 layers of
512, 8 heads, 37000 tokens) with random weights. The program fails where an attention is not fused, where the parser
dropped an input, or where the report does not read back. Built, not run: what an engine computes is checked on a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edgeformer.exporter import onnx_graphs
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
from edgeformer.models.transformer import Transformer
from edgeformer.runtime.names import Dims

TARGET, PRECISIONS, ONE_GPU = "tensorrt-rtx", ("fp16", "bf16", "int8", "int4"), ("8.9",)
ROLES = ("encoder", "decoder")
G2P = Path(__file__).parents[1] / "examples" / "g2p" / "checkpoint"
BASE = TransformerConfig(vocab_size=37_000)  # the defaults are the paper's


@dataclasses.dataclass(frozen=True, slots=True)
class Typed:
    """Graphs of one model in one precision, on disk."""

    model: str
    precision: str
    folder: Path
    solved: Solved
    inputs: Mapping[str, Mapping[str, Dims]]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What a build of both graphs gave; sizes in bytes, the time in seconds over both."""

    model: str
    precision: str
    compute_capabilities: tuple[str, ...]
    attentions: int
    fused: int
    unused_inputs: int
    plans: int
    peak: int
    seconds: float

    @property
    def good(self) -> bool:
        return self.fused == self.attentions > 0 and self.unused_inputs == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--models", default="g2p,base")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    arguments = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="edgeformer-") as name:
        jobs = list(typed_graphs(Path(name), arguments.models.split(","), arguments.precisions.split(",")))
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each build is a process that uses one core
            rows = list(pool.map(build, *zip(*itertools.product(jobs, (False, True)), strict=True)))
    print_rows(rows, time.perf_counter() - begin)
    if arguments.json:
        arguments.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n")
    if bad := [row for row in rows if not row.good]:
        sys.exit(f"{len(bad)} of {len(rows)} artifacts have attentions that are not fused, or inputs that were dropped")


def typed_graphs(folder: Path, models: list[str], precisions: list[str]) -> Iterator[Typed]:
    """The graphs of each model, exported once, in each precision."""
    for name in models:
        model = load_checkpoint(G2P) if name == "g2p" else Transformer(BASE).eval()
        sizes = onnx_graphs.sizes_of(model)
        portable = folder / name
        portable.mkdir()
        save_graphs(portable, {"encoder": onnx_graphs.export_encoder(model), "decoder": onnx_graphs.export_step(model)})
        solved = solve(sizes, EngineOptions())
        for precision in precisions:
            (dtype, weights), here = TYPES[precision], folder / f"{name}-{precision}"
            graphs = {role: load_graph(portable / f"{role}.onnx") for role in ROLES}
            for role, graph in graphs.items():
                capacity = solved.capacity if role == "decoder" else None
                rewrite(graph, role, dtype=dtype, weights=weights, attention="native", capacity=capacity)
            here.mkdir()
            save_graphs(here, graphs)
            yield Typed(name, precision, here, solved, {role: input_dims(graph) for role, graph in graphs.items()})


def build(typed: Typed, portable: bool) -> Row:
    """Both engines, and what their report says once it is read back."""
    wanted = () if portable else ONE_GPU
    choice = choose_target(TARGET, typed.precision, compute_capabilities=wanted)
    folder = typed.folder / ("portable" if portable else "one")
    folder.mkdir()
    builds = {role: build_role(typed, role, folder, choice.compute_capabilities) for role in ROLES}
    report = ArtifactReport(typed.model, TARGET, typed.precision, choice.compute_capabilities, builds)
    (folder / REPORT).write_text(report.to_json(), encoding="utf-8")
    read = read_report(folder)
    if read != report:
        sys.exit(f"the report of {typed.model} in {typed.precision} does not read back as it was written")
    return row_of(read)


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


def row_of(report: ArtifactReport) -> Row:
    builds = report.builds.values()
    return Row(
        model=report.name,
        precision=report.precision,
        compute_capabilities=report.compute_capabilities,
        attentions=sum(len(build.attentions) for build in builds),
        fused=sum(build.fused for build in builds),
        unused_inputs=sum(len(build.unused_inputs) for build in builds),
        plans=sum(build.plan_bytes for build in builds),
        peak=max(build.memory["build peak"] for build in builds),
        seconds=sum(build.seconds for build in builds),
    )


def print_rows(rows: list[Row], seconds: float) -> None:
    print(f"{'model':6}{'precision':11}{'fused':>8}{'plans':>10}{'peak':>10}{'time':>9}  GPUs")
    for row in rows:
        print(
            f"{row.model:6}{row.precision:11}{row.fused:>4}/{row.attentions:<3}{row.plans / 1e6:>7.1f} MB"
            f"{row.peak / 1e9:>7.2f} GB{row.seconds:>7.1f} s  {', '.join(row.compute_capabilities)}"
        )
    print(f"{len(rows)} artifacts of two engines each, {seconds:.0f} s on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
