"""Encoders in the place of models that write, so that both are measured in one way."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgeformer.cli.benching.grid import Source
from edgeformer.cli.inputs import Line, encode
from edgeformer.runtime import EncoderModel, Generation, GenerationConfig, Model, load, load_encoder
from edgeformer.runtime.bundle import Manifest, read_manifest
from edgeformer.runtime.cores import Cores
from edgeformer.runtime.errors import InputError
from edgeformer.runtime.results import Hypothesis, Timings

if TYPE_CHECKING:
    from collections.abc import Callable


class Encoding:
    """An encoder whose answer counts as its first and only step, and whose tokens are those that it reads."""

    def __init__(self, model: EncoderModel) -> None:
        self.model, self.bundle, self.artifact = model, model.bundle, model.artifact
        self.generation_config = GenerationConfig()
        self.read: dict[str, tuple[int, ...]] = {}  # ids of texts, so that they are not counted while time counts
        heads: dict[str, Callable[..., object]] = {
            "embedding": model.encode,
            "sequence-classes": model.classify,
            "token-classes": model.label_tokens,
        }
        self.answer = heads.get(model.record.head, model.hidden_states)  # masks are not in every input

    def generate(
        self, inputs: Sequence[Source], config: GenerationConfig | None = None, *, batch_size: int = 64
    ) -> list[Generation]:
        """Call what the head is for; `config` says nothing to an encoder."""
        begin = time.perf_counter()
        self.answer(inputs, batch_size=batch_size)
        seconds = time.perf_counter() - begin
        timings = Timings(seconds, seconds, seconds, 1, (seconds,))
        return [Generation((Hypothesis(self.ids(source), 0.0, "length"),), timings) for source in inputs]

    def ids(self, source: Source) -> tuple[int, ...]:
        """What an input is read as.

        Raises:
            InputError: the model cannot take it.
        """
        if not isinstance(source, str):
            return tuple(source)
        if source not in self.read:
            self.read[source] = tuple(self.model.encode_inputs(source, False)[0].ids)
        return self.read[source]

    def most_rows(self) -> int:
        """Rows that are computed together: those beyond what the artifact takes are computed after one another."""
        return sys.maxsize


Subject = Model | Encoding


def open_subject(folder: Path, name: str, cores: Cores) -> Subject:
    """Load what is measured.

    Raises:
        EdgeformerError: as `load` and `load_encoder`.
    """
    if read_manifest(folder).kind == "encoder":
        return Encoding(load_encoder(folder, name, threads=cores.threads, spin=cores.spin))
    return load(folder, name, threads=cores.threads, spin=cores.spin)


def samples(manifest: Manifest) -> list[list[int]]:
    """Rows of ids of a bundle's own samples."""
    found = manifest.encoder.samples if manifest.encoder else manifest.golden
    return [list(sample.source_ids) for sample in found]


def vocabulary(manifest: Manifest) -> list[int]:
    """Ids that prompts are cut from: those of the bundle's samples, which are ordinary ones."""
    return sorted({token for row in samples(manifest) for token in row}) or [0]


def check_texts(subject: Subject, lines: Sequence[Line]) -> None:
    """Refuse texts that the model cannot take.

    Raises:
        InputError: the place of the first of them is named.
    """
    if isinstance(subject, Model):
        encode(subject, lines)
        return
    for line in lines:
        try:
            subject.ids(line.text)
        except InputError as error:
            raise line.error(error) from error
