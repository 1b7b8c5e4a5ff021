"""Which bits each product gets, and codes that a sample of texts has helped to choose."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from edgeformer.exporter import ort_cpu
from edgeformer.exporter.external_weights import save_graphs
from edgeformer.exporter.jobs import Job
from edgeformer.exporter.ort_cpu.block_codes import Array, Codes, Scheme, quantize
from edgeformer.exporter.ort_cpu.calibration import (
    Sample,
    Trial,
    mean_distance,
    moments_of,
    open_trial,
    samples_of,
    show_inputs,
)
from edgeformer.exporter.ort_cpu.gptq import quantize_with_compensation
from edgeformer.exporter.ort_cpu.matching import Product, products
from edgeformer.exporter.ort_cpu.traits import needs_empty_caches, shares_sources
from edgeformer.exporter.ort_cpu.weight_only import Quantize, Recipe
from edgeformer.exporter.quantization_options import MOST_DIFFERENCE, MOST_DIVERGENCE, QuantizationOptions
from edgeformer.runtime.bundle import Artifact

TRIAL = "trial"  # folder in the artifact's own, gone before it is done


def recipes(job: Job, options: QuantizationOptions) -> dict[str, Recipe]:
    """A recipe for each graph, by role.

    Raises:
        InputError: the calibration file cannot be used.
    """
    precision, roles = job.choice.precision, list(job.portable.graphs)
    plain = Recipe(8 if precision == "int8" else 4, options.block_size, not options.asymmetric)
    if precision != "auto" and options.calibration is None:
        return dict.fromkeys(roles, plain)
    job.progress("preparing the calibration sample")
    trials = Trials(job, samples_of(job, options.calibration))
    try:
        found = dict.fromkeys(roles, plain)
        if options.calibration is not None:  # golden samples are random ids: inputs as the model never meets them
            codes = trials.codes_from_moments()
            found = {role: dataclasses.replace(plain, quantize=codes[role]) for role in roles}
        return found if precision != "auto" else trials.auto(found, options)
    finally:
        trials.remove()


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """A product, and what storing it in 4 bits alone costs.

    Attributes:
        divergence: nats a token; of an encoder, a share of its output.
        saved: bytes, against 8 bits.
        numbers: how many weights it has.
    """

    role: str
    name: str
    divergence: float
    saved: int
    numbers: int


class Trials:
    """The graphs in fp32, with one product or another in codes, run on samples."""

    def __init__(self, job: Job, samples: list[Sample]) -> None:
        self.job, self.samples = job, samples
        self.folder = job.folder / TRIAL
        self.folder.mkdir()
        self.graphs = {role: job.graph(role) for role in job.portable.graphs}
        beside = {name: g for graph in self.graphs.values() for name, g in ort_cpu.rewrite(graph, "auto").items()}
        self.products = {role: products(graph.graph) for role, graph in self.graphs.items()}
        shown = {role: graph.clone() for role, graph in self.graphs.items()}
        self.inputs = {role: show_inputs(graph.graph) for role, graph in shown.items()}
        self.roles = [*self.graphs, *beside]
        save_graphs(self.folder, {**shown, **beside})
        self.with_inputs = self.open({role: sorted(set(inputs.values())) for role, inputs in self.inputs.items()})
        save_graphs(self.folder, {**self.graphs, **beside})

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def open(self, shown: Mapping[str, list[str]] = MappingProxyType({})) -> Trial:
        """The graphs in the folder, ready to run."""
        root = self.job.folder.parent
        paths = {role: (self.folder / f"{role}.onnx").relative_to(root).as_posix() for role in self.roles}
        artifact = Artifact(
            name=TRIAL, target="ort-cpu", backend="ort-cpu", precision="fp32", graphs=paths, files={}, versions={},
            needs={}, shared_sources=shares_sources(self.graphs),
            long_steps_need_empty_caches=needs_empty_caches(self.graphs),
        )  # fmt: skip
        return open_trial(dataclasses.replace(self.job.bundle, folder=root), artifact, shown)

    def codes_from_moments(self) -> dict[str, Quantize]:
        """What makes codes whose errors make up for each other on the samples, by role."""
        self.job.progress("reading the calibration sample")
        moments = moments_of(self.with_inputs, self.samples, self.on_done)
        return {role: partial(coded_with, moments, inputs) for role, inputs in self.inputs.items()}

    def on_done(self, done: int, of: int) -> None:
        self.job.on_build(done / of, f"{done} of {of}")

    def auto(self, found: dict[str, Recipe], options: QuantizationOptions) -> dict[str, Recipe]:
        """4 bits where they cost least, 8 elsewhere, within a budget."""
        measured = self.measure(found)
        of_encoder = self.job.bundle.manifest.kind == "encoder"
        budget = options.most_divergence or (MOST_DIFFERENCE if of_encoder else MOST_DIVERGENCE)
        kept = kept_at_8_bits(measured, budget, options.average_bits)
        rest = sum(m.divergence for m in measured) - sum(m.divergence for m in kept)
        unit = "of the output" if of_encoder else "nats a token"
        self.job.progress(
            f"{len(kept)} of {len(measured)} products keep 8 bits; the others lose {rest:.1e} {unit} in 4"
        )
        return {
            role: dataclasses.replace(recipe, by_name={m.name: 8 for m in kept if m.role == role})
            for role, recipe in found.items()
        }

    def measure(self, found: Mapping[str, Recipe]) -> list[Measured]:
        """What each product costs alone in 4 bits."""
        reference = [self.open().run(sample)[0] for sample in self.samples]
        every = [(role, product) for role, several in self.products.items() for product in several]
        measured = []
        self.job.progress("measuring what each product loses in 4 bits")
        for number, (role, product) in enumerate(every, start=1):
            k, n = product.weight.shape
            scheme = found[role].scheme(product.name, k)
            if scheme is not None:
                lost = self.divergence_with(role, product, found[role].quantize, scheme, reference)
                saved = dataclasses.replace(scheme, bits=8).bytes(k, n) - scheme.bytes(k, n)
                measured.append(Measured(role, product.name, lost, saved, k * n))
            self.on_done(number, len(every))
        return measured

    def divergence_with(
        self, role: str, product: Product, quantize: Quantize, scheme: Scheme, reference: list[Array]
    ) -> float:
        """Of the graphs with one product in codes from those in fp32."""
        graph, path = self.graphs[role], self.folder / f"{role}.onnx"
        value = graph.graph.initializers[product.name]
        before = value.const_value
        codes = quantize(product.name, product.weight, scheme)
        value.const_value = ir.tensor(np.ascontiguousarray(codes.weight()), name=product.name)
        try:
            ir.save(graph, path)
            return mean_distance(reference, self.open(), self.samples)
        finally:
            value.const_value = before
            ir.save(graph, path)


def coded_with(
    moments: Mapping[str, Array], inputs: Mapping[str, str], name: str, weight: Array, scheme: Scheme
) -> Codes:
    """Codes of a product's weight, by what is known of its input."""
    of_input = moments.get(inputs.get(name, ""))
    if of_input is None:
        return quantize(weight, scheme)
    if of_input.ndim == 1:
        return quantize(weight, scheme, of_input)
    return quantize_with_compensation(weight, scheme, of_input)


def kept_at_8_bits(measured: list[Measured], budget: float, average_bits: float | None) -> list[Measured]:
    """Those that cost most for what they save, until the others are within the budget, or the bits are used up."""
    by_cost = sorted(measured, key=lambda m: -m.divergence / max(m.saved, 1))
    numbers = sum(m.numbers for m in measured)
    kept = list[Measured]()
    for candidate in by_cost:
        if average_bits is not None:
            if 4 + 4 * sum(m.numbers for m in [*kept, candidate]) / numbers <= average_bits:
                kept.append(candidate)
        elif sum(m.divergence for m in by_cost[len(kept) :]) > budget:
            kept.append(candidate)
    return kept
