"""The side of benchmarks/peer_speed.py that is ours: a bundle of the checkpoint, and its artifacts at work.

The protocol and the arguments are those of peers/answering.py; a format is a precision of ort-cpu.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
sys.path.insert(0, str(PEERS))

import answering  # noqa: E402
import onnxruntime  # noqa: E402, F401  # here, as peers import their libraries, and not while loading is timed

from edgeformer.runtime import EncoderModel, GenerationConfig, Model, load_encoder  # noqa: E402
from edgeformer.runtime import load as load_model  # noqa: E402

TARGET = "ort-cpu"
PACKAGES = ("edgeformer", "onnxruntime", "numpy")
NUMBERS_OF_A_VECTOR = 32  # of the first token's, to compare by


def convert(kind: str, checkpoint: Path, output: Path, form: str) -> None:
    """Export the checkpoint, and keep of the bundle what this precision needs."""
    from edgeformer.exporter.exporting import export_checkpoint
    from edgeformer.exporter.optimizing import optimize_bundle

    if not output.exists():
        export_checkpoint(checkpoint, output)
    optimize_bundle(output, TARGET, form)


def load(kind: str, bundle: Path, form: str, threads: int) -> answering.Run:
    artifact = f"{TARGET}-{form}"
    if kind == "encoder":
        return Encoder(load_encoder(bundle, artifact, threads=threads)).run
    return Decoder(load_model(bundle, artifact, threads=threads)).run


class Decoder:
    """Of a language model as well as of an encoder-decoder, whose searches end as CTranslate2's do."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, work: answering.Work) -> list[list[int]]:
        config = GenerationConfig(max_new_tokens=work.new_tokens)
        if work.beams > 1:
            config = dataclasses.replace(config, num_beams=work.beams, early_stopping=True, length_penalty=1.0)
        found = self.model.generate(work.inputs, config, batch_size=len(work.inputs))
        return [list(generation.token_ids) for generation in found]


class Encoder:
    def __init__(self, model: EncoderModel) -> None:
        self.model = model

    def run(self, work: answering.Work) -> list[list[float]]:
        return [states[0, :NUMBERS_OF_A_VECTOR].tolist() for states in self.model.hidden_states(work.inputs)]


if __name__ == "__main__":
    answering.main(convert, load, PACKAGES)
