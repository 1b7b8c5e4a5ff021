"""Takes a tiny random model of every family the whole road, and writes the table of docs/families.md.

    python benchmarks/families.py [--families 'LLaMA;BART'] [--no-engines] [--docs docs/families.md] [--json FILE]

A checkpoint as transformers saves it is exported and verified; ONNX Runtime graphs for CPUs in 32, 8 and 4 bits are
made and verified; greedy and beam search through the runtime are compared with transformers' own, and so is every
log-probability; an engine of TensorRT-RTX is built for one GPU, not run. The program fails where a family fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from family_references import (
    BEAMS,
    NEW_TOKENS,
    OPTIONS,
    Ids,
    encoded,
    generated,
    log_probs,
    output_difference,
    random_rows,
    score_difference,
)  # fmt: skip
from tiny_checkpoints import VARIATIONS, make_checkpoint

from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.tensorrt.options import EngineOptions
from edgeformer.exporter.tensorrt.report import read_report
from edgeformer.runtime import Model, load, load_encoder

DOCS = Path(__file__).parents[1] / "docs" / "families.md"
BEGIN, END = "<!-- table -->\n", "\n<!-- end of table -->"
PRECISIONS = ("fp32", "int8", "int4")
PARITY = 5e-5  # of log-probabilities in fp32: 7e-6 on most processors, 2e-5 on one with AVX2 alone
GPU = "8.9"
ENGINE = EngineOptions(compute_capabilities=(GPU,), batch=(1, 4, 16))


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What came of a family.

    Attributes:
        differences: the largest from transformers, by precision: of a token's log-probability, of an encoder's outputs
            relative to their root mean square.
        searches: whether greedy and beam search gave transformers' tokens; empty where the model does not write.
        fused, attentions: of the engines; None where none were built.
        seconds: in all.
        problem: what failed, empty where nothing did.
    """

    family: str
    differences: dict[str, float] = dataclasses.field(default_factory=dict)
    searches: dict[str, bool] = dataclasses.field(default_factory=dict)
    fused: int | None = None
    attentions: int | None = None
    seconds: float = 0.0
    problem: str = ""

    @property
    def good(self) -> bool:
        return not self.problem and all(self.searches.values()) and self.differences["fp32"] <= PARITY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", help="some of them, with semicolons between; all where it is missing")
    parser.add_argument("--no-engines", action="store_true", help="build none, such as where TensorRT-RTX is missing")
    parser.add_argument("--docs", type=Path, help="the page whose table is written anew, such as docs/families.md")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes, one core each")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    families = arguments.families.split(";") if arguments.families else list(VARIATIONS)
    rows = list[Row]()
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(whole_road, family, not arguments.no_engines) for family in families]):
            rows.append(row := done.result())
            print(" | ".join(cells(row)), f"| {row.seconds:.0f} s", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) + "\n")
    print(f"{len(rows)} families, {time.perf_counter() - begin:.0f} s, {arguments.jobs} processes")
    rows.sort(key=lambda row: families.index(row.family))
    if arguments.docs:
        write_docs(arguments.docs, rows)
    if bad := [row for row in rows if not row.good]:
        sys.exit("\n".join(f"{row.family}: {row.problem or 'is not equal to transformers'}" for row in bad))


def whole_road(family: str, engines: bool) -> Row:
    """Take one family from its checkpoint to engines, as far as it goes."""
    torch.set_num_threads(1)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="edgeformer-") as name:
        try:
            row = travelled(family, Path(name), engines)
        except Exception as error:  # the others go on
            traceback.print_exc()
            row = Row(family, problem=f"{type(error).__name__}: {error}")
    return dataclasses.replace(row, seconds=time.perf_counter() - begin)


def travelled(family: str, folder: Path, engines: bool) -> Row:
    theirs = make_checkpoint(family, folder / "checkpoint")
    bundle = folder / "bundle"
    manifest = export_checkpoint(folder / "checkpoint", bundle)
    for precision in PRECISIONS:
        optimize_bundle(bundle, "ort-cpu", precision)
    compare = compare_encoder if manifest.kind == "encoder" else compare_generation
    row = compare(family, theirs, bundle)
    return with_engines(row, bundle) if engines else row


def compare_generation(family: str, theirs: Any, bundle: Path) -> Row:
    rows, searches, targets = random_rows(), dict[str, bool](), list[Ids]()
    model = load(bundle, "ort-cpu-fp32", threads=1)
    for name, beams in (("greedy", 1), (f"beam {BEAMS}", BEAMS)):
        expected = [generated(theirs, row, beams) for row in rows]
        searches[name] = together(family, model, rows, beams) == expected
        targets = targets or expected
    if len(set().union(*targets)) < 10:
        raise ValueError(f"greedy search goes nowhere: {targets}")
    scores = {target: log_probs(theirs, row, target) for row, target in zip(rows, targets, strict=True)}
    differences = {p: score_difference(load(bundle, f"ort-cpu-{p}", threads=1), rows, scores) for p in PRECISIONS}
    return Row(family, differences, searches)


def together(family: str, model: Model, rows: list[list[int]], beams: int) -> list[Ids]:
    """What the runtime generates for a ragged batch, with the checkpoint's own options."""
    options = OPTIONS if VARIATIONS[family].model else {"max_new_tokens": NEW_TOKENS}
    config = model.generation_config.changed(num_beams=beams, **options)
    return [generation.token_ids for generation in model.generate(rows, config)]


def compare_encoder(family: str, theirs: Any, bundle: Path) -> Row:
    rows = random_rows()
    expected: list[np.ndarray[Any, Any]] = [encoded(theirs, row, VARIATIONS[family].pooled) for row in rows]
    loaded = {precision: load_encoder(bundle, f"ort-cpu-{precision}", threads=1) for precision in PRECISIONS}
    return Row(family, {precision: output_difference(model, rows, expected) for precision, model in loaded.items()})


def with_engines(row: Row, bundle: Path) -> Row:
    artifact = optimize_bundle(bundle, "tensorrt-rtx", "fp16", ENGINE)
    builds = read_report(bundle / artifact.name).builds.values()
    attentions = sum(len(build.attentions) for build in builds)
    return dataclasses.replace(row, fused=sum(build.fused for build in builds), attentions=attentions)


def cells(row: Row) -> list[str]:
    """A row of the table."""
    if row.problem:
        return [row.family, f"failed: {row.problem.splitlines()[0][:200]}", *[""] * 4]
    searches = ", ".join(f"{name} {'equal' if same else 'differs'}" for name, same in row.searches.items())
    differences = [f"{row.differences[precision]:.1e}" for precision in PRECISIONS]
    built = "not built" if row.attentions is None else f"{row.fused} of {row.attentions}"
    return [row.family, differences[0], searches or "does not write", *differences[1:], built]


def table(rows: list[Row]) -> str:
    names = ("family", "fp32", f"{NEW_TOKENS} tokens", "8 bits", "4 bits", f"fp16 for {GPU}: attentions fused")
    lines = [names, ("---",) * len(names), *(cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_docs(path: Path, rows: list[Row]) -> None:
    text = path.read_text(encoding="utf-8")
    head, tail = text.partition(BEGIN)[0], text.partition(END.lstrip())[2]
    path.write_text(f"{head}{BEGIN}\n{table(rows)}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
