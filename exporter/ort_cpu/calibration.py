"""What a model computes on texts: the inputs of its products, and what it gives in the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx_ir as ir

from edgeformer.exporter.jobs import Job
from edgeformer.exporter.ort_cpu.block_codes import Array
from edgeformer.exporter.ort_cpu.matching import products
from edgeformer.exporter.records import PORTABLE
from edgeformer.runtime import GenerationConfig, load, load_encoder, names
from edgeformer.runtime.backends import Ints
from edgeformer.runtime.backends.onnxruntime_cpu import OnnxRuntimeExecutor, OnnxRuntimeRows
from edgeformer.runtime.backends.onnxruntime_sessions import CPU, Sessions
from edgeformer.runtime.bundle import Artifact, Bundle
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.encoder_batches import graph_inputs
from edgeformer.runtime.encoder_text import EncodedInput
from edgeformer.runtime.encoders import record_of
from edgeformer.runtime.errors import EdgeformerError, InputError
from edgeformer.runtime.probabilities import log_softmax

MOST_TEXTS, MOST_TOKENS = 128, 512
WIDEST = 4096  # inputs of a product whose moments are kept whole: they take the square of it

OnDone = Callable[[int, int], None]  # how many of how many are done


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """A source and what follows it, as ids; nothing follows it where the model only reads."""

    source: tuple[int, ...]
    target: tuple[int, ...]


def samples_of(job: Job, calibration: Path | None) -> list[Sample]:
    """The texts of a file, with what fp32 generates from them where the model reads sources; else the golden samples.

    A text longer than MOST_TOKENS is cut; so is one that an encoder or a language model has no positions for.

    Raises:
        InputError: the file is empty, not UTF-8, or holds a line that the model cannot take.
    """
    manifest = job.bundle.manifest
    if calibration is None:
        if manifest.encoder is not None:
            return [Sample(sample.source_ids, ()) for sample in manifest.encoder.samples]
        return [Sample(sample.source_ids, sample.greedy) for sample in manifest.golden]
    lines = lines_of(calibration)
    if manifest.encoder is not None:
        encoder = load_encoder(job.bundle.folder, PORTABLE)
        rows = encoded(calibration, lines, lambda line: encoder.text.encode(line, truncate=True).ids)
        return [Sample(row, ()) for row in rows]
    model = load(job.bundle.folder, PORTABLE)
    if model.kind == "decoder":
        rows = encoded(calibration, lines, lambda line: model.text.encode_prompt(line)[: model.most_tokens()])
        return [Sample(row, ()) for row in rows]
    rows = encoded(calibration, lines, model.encode_input)
    generated = model.generate(
        [list(row) for row in rows], GenerationConfig(max_new_tokens=min(64, model.most_tokens()))
    )
    return [Sample(row, found.token_ids) for row, found in zip(rows, generated, strict=True)]


def encoded(path: Path, lines: Sequence[str], encode: Callable[[str], Sequence[int]]) -> list[tuple[int, ...]]:
    """The ids of each line of a file, cut.

    Raises:
        InputError: with the number of the line that cannot be taken.
    """
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(tuple(encode(line))[:MOST_TOKENS])
        except EdgeformerError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
    return rows


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


class Trial(Protocol):
    """Rewritten graphs in fp32 on disk, to be run on samples.

    Made of the bundle whose manifest and sizes the graphs have, an artifact that names the graphs by paths from the
    bundle's folder, and the names of further outputs of each role's graph that are to be shown.
    """

    def run(self, sample: Sample) -> tuple[Array, dict[str, Array]]:
        """What the model gives for a sample, a row for each token or one for all, and the values that are shown."""

    def distance(self, expected: Array, found: Array) -> Array:
        """How far each row is from what fp32 gave, (rows,)."""


def open_trial(bundle: Bundle, artifact: Artifact, shown: Mapping[str, Sequence[str]]) -> Trial:
    """The trial of a model's kind; arguments are as `Trial` says."""
    kind = EncodingTrial if bundle.manifest.kind == "encoder" else GeneratingTrial
    return kind(bundle, artifact, shown)


class EncodingTrial:
    """Of a model that only reads: its last output, and squared differences as a share of what they differ from."""

    def __init__(self, bundle: Bundle, artifact: Artifact, shown: Mapping[str, Sequence[str]]) -> None:
        self.record, self.pad = record_of(bundle), bundle.manifest.tokens.pad
        self.session = Sessions(bundle, artifact, Cores(), [CPU]).open("encoder")
        self.inputs = {value.name for value in self.session.get_inputs()}
        self.wanted = [self.record.output, *shown.get("encoder", ())]

    def run(self, sample: Sample) -> tuple[Array, dict[str, Array]]:
        row = EncodedInput(sample.source, (0,) * len(sample.source))
        every = graph_inputs(self.record, [row], [range(len(sample.source))], self.pad)
        given = {name: array for name, array in every.items() if name in self.inputs}
        found = dict(zip(self.wanted, self.session.run(self.wanted, given), strict=True))
        return found.pop(self.record.output)[0].reshape(-1, self.record.width), found

    def distance(self, expected: Array, found: Array) -> Array:
        distances: Array = np.square(found - expected).sum(-1) / np.square(expected).sum(-1)
        return distances


class GeneratingTrial:
    """Of a model that writes: log-probabilities, and their Kullback-Leibler divergence in nats."""

    def __init__(self, bundle: Bundle, artifact: Artifact, shown: Mapping[str, Sequence[str]]) -> None:
        self.executor = OnnxRuntimeExecutor(bundle, artifact, Cores())
        self.manifest, self.shown = bundle.manifest, shown

    def run(self, sample: Sample) -> tuple[Array, dict[str, Array]]:
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

    def distance(self, expected: Array, found: Array) -> Array:
        divergences: Array = (np.exp(expected) * (expected - found)).sum(-1)
        return divergences


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


def mean_distance(reference: Sequence[Array], trial: Trial, samples: Sequence[Sample]) -> float:
    """Of what a trial gives for samples from the reference's."""
    pairs = zip(reference, samples, strict=True)
    distances = np.concatenate([trial.distance(expected, trial.run(sample)[0]) for expected, sample in pairs])
    return float(distances.mean(dtype=np.float64))
