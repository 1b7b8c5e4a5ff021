"""What a model computes on texts: the inputs of its products, and the probabilities that it gives in the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgeformer.exporter.jobs import Job
from edgeformer.exporter.ort_cpu.block_codes import Array
from edgeformer.exporter.ort_cpu.matching import products
from edgeformer.exporter.records import PORTABLE
from edgeformer.runtime import GenerationConfig, load, names
from edgeformer.runtime.backends import Ints
from edgeformer.runtime.backends.onnxruntime_cpu import OnnxRuntimeExecutor, OnnxRuntimeRows
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.errors import EdgeformerError, InputError
from edgeformer.runtime.probabilities import log_softmax

MOST_TEXTS, MOST_TOKENS = 128, 512
WIDEST = 4096  # inputs of a product whose moments are kept whole: they take the square of it

OnDone = Callable[[int, int], None]  # how many of how many are done


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """A source and what follows it, as ids."""

    source: tuple[int, ...]
    target: tuple[int, ...]


def samples_of(job: Job, calibration: Path | None) -> list[Sample]:
    """The texts of a file, with what fp32 generates from them where the model reads sources; else the golden samples.

    Raises:
        InputError: the file is empty, not UTF-8, or holds a line that the model cannot take.
    """
    golden = job.bundle.manifest.golden
    if calibration is None:
        return [Sample(sample.source_ids, sample.greedy) for sample in golden]
    model = load(job.bundle.folder, PORTABLE)
    rows = []
    for number, line in enumerate(lines_of(calibration), start=1):
        try:
            rows.append(model.encode_inputs(line)[0][:MOST_TOKENS])
        except EdgeformerError as error:
            raise InputError(f"{calibration}, line {number}: {error}") from error
    if model.kind == "decoder":
        return [Sample(tuple(row), ()) for row in rows]
    generated = model.generate(rows, GenerationConfig(max_new_tokens=min(64, model.most_tokens())))
    return [Sample(tuple(row), found.token_ids) for row, found in zip(rows, generated, strict=True)]


def lines_of(path: Path) -> list[str]:
    """The first lines of a file that hold something.

    Raises:
        InputError: there are none, or it is not text.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error.reason} at {error.start}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{path} is empty: give texts, one a line")
    return lines[:MOST_TEXTS]


class Trial:
    """Rewritten graphs in fp32 on disk, to be run on samples.

    Args:
        bundle: whose manifest and sizes the graphs have.
        artifact: names the graphs, by paths from the bundle's folder.
        shown: names of further outputs of each role's graph.
    """

    def __init__(self, bundle: Bundle, artifact: Artifact, shown: Mapping[str, Sequence[str]] | None = None) -> None:
        self.executor = OnnxRuntimeExecutor(bundle, artifact, None)
        self.manifest, self.shown = bundle.manifest, shown or {}

    def run(self, sample: Sample) -> tuple[Array, dict[str, Array]]:
        """Log-probabilities (tokens, vocab_size) after each position of a sample, and the values that are shown."""
        tokens, values = self.manifest.tokens, dict[str, Array]()
        if self.manifest.kind == "decoder":
            ids = [*(sample.source or (tokens.start,)), *sample.target]
            rows = self.executor.start_empty(1, len(ids))
        else:
            ids = [tokens.start, *sample.target]
            source: Ints = np.array([sample.source], np.int64)
            if wanted := list(self.shown.get("encoder", ())):
                given = {names.INPUT_IDS: source, names.SOURCE_LENGTHS: np.array([source.shape[1]])}
                values |= zip(wanted, self.executor.sessions["encoder"].run(wanted, given), strict=True)
            rows = self.executor.start([sample.source], len(ids))
        with closing(rows):
            log_probs, shown = self.step(rows, np.array([ids], np.int64))
        return log_probs, values | shown

    def step(self, rows: OnnxRuntimeRows, ids: Ints) -> tuple[Array, dict[str, Array]]:
        every = np.arange(ids.shape[1])[None]
        wanted = list(self.shown.get("decoder", ()))
        rows.reserve(ids.shape[1])
        frame = rows.use_frame(ids.shape[1], ids.shape[1])
        frame.binding.new_outputs(wanted, "cpu")
        log_probs = log_softmax(rows.run(ids, None, every))[0]  # in one run: what is shown is of this frame
        values = [value.numpy().copy() for value in frame.binding.made()]
        return log_probs, dict(zip(wanted, values[len(values) - len(wanted) :], strict=True))


def show_inputs(graph: ir.Graph) -> dict[str, str]:
    """Make what goes into each product an output of the graph; its name, by the product's."""
    shown = {}
    for product in products(graph):
        if product.x.name is None:
            continue
        if not product.x.is_graph_output() and not product.x.is_graph_input():
            product.x.type = product.x.type or ir.TensorType(ir.DataType.FLOAT)
            graph.outputs.append(product.x)
        shown[product.name] = product.x.name
    return shown


def moments_of(trial: Trial, samples: Sequence[Sample], on_done: OnDone) -> dict[str, Array]:
    """X^T X of each value that a trial shows, over the tokens of all samples, (k, k) or its diagonal (k,)."""
    totals: dict[str, Array] = {}
    for number, sample in enumerate(samples, start=1):
        for name, value in trial.run(sample)[1].items():
            x = value.reshape(-1, value.shape[-1])
            added = x.T @ x if x.shape[1] <= WIDEST else np.square(x).sum(axis=0)
            totals[name] = totals[name] + added if name in totals else added
        on_done(number, len(samples))
    return totals


def divergence(reference: Sequence[Array], trial: Trial, samples: Sequence[Sample]) -> float:
    """Kullback-Leibler divergence of a trial's probabilities from the reference's, in nats a token."""
    total, count = 0.0, 0
    for expected, sample in zip(reference, samples, strict=True):
        found = trial.run(sample)[0]
        total += float((np.exp(expected) * (expected - found)).sum())
        count += len(expected)
    return total / count
