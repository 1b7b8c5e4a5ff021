"""Table 1 of "Attention Is All You Need", measured: how time and memory of a layer grow with length and width.

    python benchmarks/complexity.py -o complexity.json --plot complexity.png

One layer each of self-attention, an LSTM, a convolution and restricted attention is exported to ONNX, as models are,
and run by ONNX Runtime over a grid of lengths n and widths d. The exponents of n and d are fitted to the medians and
put beside those of the table. Memory is the growth of a process of its own; attention by its definition, which keeps
n^2 scores for each head, stands beside the fused form there.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from complexity_layers import HEAD_DIM, LAYERS, NAIVE, WINDOW, Layer
from torch.export import Dim

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.cli.progress import counting
from edgeformer.exporter.onnx_graphs import export

LENGTHS, WIDTHS = (256, 512, 1024, 2048, 4096), (64, 128, 256, 512)
MEMORY_WIDTH = 256
REPEATS, LEAST_SECONDS = 5, 0.02  # a measurement is a median of repeats, each of at least so long


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A layer at one size: median seconds of a run, and bytes that a process grew by (None where not measured)."""

    layer: str
    n: int
    d: int
    seconds: float
    bytes: int | None = None


def graph_of(layer: Layer, d: int, folder: Path) -> Path:
    """The layer as a graph on disk, its length dynamic."""
    path = folder / f"{layer.name.split(',')[0].replace(' ', '-')}-{d}.onnx"
    if layer.name == "self-attention":
        ir.save(fused_attention(d), path)
        return path
    torch.manual_seed(0)
    blocks = Dim("blocks", min=2)
    x = torch.zeros(1, 4 * WINDOW, d)
    ir.save(export(layer.make(d), (x,), {"x": {1: WINDOW * blocks}}, ["x"], ["y"]), path)
    return path


def fused_attention(d: int) -> ir.Model:
    """What self-attention without a mask becomes for a CPU: ONNX Runtime's operator, which works block by block."""
    shape = ir.Shape((1, "n", d))
    x, y = (ir.val(name, ir.DataType.FLOAT, shape) for name in ("x", "y"))
    node = ir.node("MultiHeadAttention", [x, x, x], {"num_heads": d // HEAD_DIM}, domain="com.microsoft", outputs=[y])
    graph = ir.Graph([x], [y], nodes=[node], opset_imports={"": 21, "com.microsoft": 1}, name="attention")
    return ir.Model(graph, ir_version=10)


def session_of(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # lengths differ from the example's that shapes were inferred with
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def seconds_of(session: onnxruntime.InferenceSession, n: int, d: int) -> float:
    x = np.random.default_rng(0).standard_normal((1, n, d), np.float32)
    begin = time.perf_counter()
    session.run(None, {"x": x})
    runs = max(1, int(LEAST_SECONDS / (time.perf_counter() - begin)))

    def once() -> float:
        begin = time.perf_counter()
        for _ in range(runs):
            session.run(None, {"x": x})
        return (time.perf_counter() - begin) / runs

    return statistics.median(once() for _ in range(REPEATS))


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def growth(path: Path, n: int, d: int, threads: int) -> int:
    """Bytes by which a fresh process grows when it runs a layer once, beyond a run of the shortest length."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(grow, (path, n, d, threads))


def grow(path: Path, n: int, d: int, threads: int) -> int:
    session = session_of(path, threads)
    session.run(None, {"x": np.zeros((1, 2 * WINDOW, d), np.float32)})
    x = np.zeros((1, n, d), np.float32)
    x += 1  # its pages count as the input's, not as the layer's
    before = peak_bytes()
    session.run(None, {"x": x})
    return peak_bytes() - before


def measure(layers: Sequence[Layer], lengths: Sequence[int], widths: Sequence[int], threads: int) -> list[Cell]:
    cells = []
    with tempfile.TemporaryDirectory() as scratch, counting("sizes measured", len(layers) * len(widths)) as on_done:
        for layer in layers:
            for d in widths:
                path = graph_of(layer, d, Path(scratch))
                session = session_of(path, threads)
                for n in lengths:
                    taken = growth(path, n, d, threads) if d == MEMORY_WIDTH else None
                    cells.append(Cell(layer.name, n, d, seconds_of(session, n, d), taken))
                on_done(1)
    return cells


def exponents(cells: Sequence[Cell]) -> tuple[float, float]:
    """a and b of seconds ~ n^a d^b by least squares of the logarithms, over the larger half of the lengths."""
    longest = sorted({cell.n for cell in cells})
    kept = [cell for cell in cells if cell.n >= longest[len(longest) // 2 - 1]]
    rows = np.array([[np.log(cell.n), np.log(cell.d), 1.0] for cell in kept])
    found, *_ = np.linalg.lstsq(rows, np.log([cell.seconds for cell in kept]), rcond=None)
    return float(found[0]), float(found[1])


def memory_exponent(cells: Sequence[Cell]) -> float | None:
    """a of bytes ~ n^a, where the growth is large enough to be told from a process' own."""
    kept = [(cell.n, cell.bytes) for cell in cells if cell.bytes is not None and cell.bytes > 1 << 20]
    if len(kept) < 3:
        return None
    n, taken = (np.log(np.array(column, np.float64)) for column in zip(*kept, strict=True))
    return float(np.polyfit(n, taken, 1)[0])


def table(cells: Sequence[Cell], layers: Sequence[Layer]) -> list[tuple[str, ...]]:
    rows = list[tuple[str, ...]]()
    for layer in layers:
        own = [cell for cell in cells if cell.layer == layer.name]
        in_n, in_d = exponents(own)
        grown = memory_exponent(own)
        rows.append((
            layer.name, layer.operations, f"n^{in_n:.2f} d^{in_d:.2f}", layer.sequential, layer.path,
            "too little to tell" if grown is None else f"n^{grown:.2f}",
        ))  # fmt: skip
    return rows


def draw(cells: Sequence[Cell], layers: Sequence[Layer], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(13, 4.2))
    for layer in layers:
        own = [cell for cell in cells if cell.layer == layer.name]
        over_n = [cell for cell in own if cell.d == MEMORY_WIDTH]
        longest = max(cell.n for cell in own)
        over_d = [cell for cell in own if cell.n == longest]
        panels[0].plot([c.n for c in over_n], [1e3 * c.seconds for c in over_n], marker="o", label=layer.name)
        panels[1].plot([c.d for c in over_d], [1e3 * c.seconds for c in over_d], marker="o")
        panels[2].plot([c.n for c in over_n], [(c.bytes or 0) / 1e6 for c in over_n], marker="o")
    titles = (f"time over n, d = {MEMORY_WIDTH}", "time over d, longest n", f"memory over n, d = {MEMORY_WIDTH}")
    for panel, title, label, unit in zip(panels, titles, ("n", "d", "n"), ("ms", "ms", "MB"), strict=True):
        panel.set(title=title, xlabel=label, ylabel=unit, yscale="log" if unit == "ms" else "symlog")
        measured = sorted({cell.d if label == "d" else cell.n for cell in cells})
        panel.set_xscale("log", base=2)
        panel.set_xticks(measured, map(str, measured))
        if unit == "MB":
            panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="n, multiples of 128, at least three")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help=f"d, multiples of {HEAD_DIM}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="PNG to draw")
    parser.add_argument("-o", "--output", type=Path, help="JSON to write")
    chosen = parser.parse_args(arguments)
    if len(chosen.lengths) < 3 or len(chosen.widths) < 2 or MEMORY_WIDTH not in chosen.widths:
        parser.error(f"at least three lengths and two widths, {MEMORY_WIDTH} among them, are needed to fit exponents")
    if any(n % (2 * WINDOW) for n in chosen.lengths) or any(d % HEAD_DIM for d in chosen.widths):
        parser.error(f"lengths are multiples of {2 * WINDOW}, widths of {HEAD_DIM}")
    return chosen


def main() -> None:
    arguments = parse(sys.argv[1:])
    layers = (*LAYERS, NAIVE)
    cells = measure(layers, arguments.lengths, arguments.widths, arguments.threads)
    columns = ["layer", "in the paper", "time, measured", "sequential operations", "longest path", "memory, measured"]
    print_table(columns, table(cells, layers))
    if arguments.plot:
        draw(cells, layers, arguments.plot)
    if arguments.output:
        values = {"machine": dataclasses.asdict(this_machine()), "onnxruntime": onnxruntime.__version__,
                  "threads": arguments.threads, "cells": [dataclasses.asdict(cell) for cell in cells]}  # fmt: skip
        write_json(arguments.output, values)
        print_line(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
