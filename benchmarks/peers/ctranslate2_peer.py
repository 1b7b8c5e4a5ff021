"""CTranslate2 on models that are written by its own specification classes; runs in an environment of its own."""

from __future__ import annotations

from pathlib import Path

import answering
import ctranslate2
import numpy as np
from ctranslate2_convert import convert as convert_transformer
from ctranslate2_one_stack import write_bert, write_llama

PACKAGES = ("ctranslate2",)
NUMBERS_OF_A_VECTOR = 32  # of the first token's, to compare by
WRITERS = {"decoder": write_llama, "encoder": write_bert, "paper": convert_transformer}


def convert(kind: str, checkpoint: Path, output: Path, form: str) -> None:
    WRITERS[kind](checkpoint, output, form)


def load(kind: str, folder: Path, form: str, threads: int) -> answering.Run:
    options = {"inter_threads": 1, "intra_threads": threads, "compute_type": form}
    if kind == "decoder":
        return Decoder(ctranslate2.Generator(str(folder), **options)).run
    if kind == "encoder":
        return Encoder(ctranslate2.Encoder(str(folder), **options)).run
    return Translator(ctranslate2.Translator(str(folder), **options)).run


class Decoder:
    """Tokens go in as texts: `w7` is the one with id 7."""

    def __init__(self, generator: ctranslate2.Generator) -> None:
        self.generator = generator

    def run(self, work: answering.Work) -> list[list[int]]:
        found = self.generator.generate_batch(
            words(work.inputs), max_length=work.new_tokens, beam_size=work.beams, include_prompt_in_result=False
        )
        return [result.sequences_ids[0] for result in found]


class Encoder:
    def __init__(self, encoder: ctranslate2.Encoder) -> None:
        self.encoder = encoder

    def run(self, work: answering.Work) -> list[list[float]]:
        states = np.array(self.encoder.forward_batch(work.inputs).last_hidden_state)
        vectors: list[list[float]] = states[:, 0, :NUMBERS_OF_A_VECTOR].tolist()
        return vectors


class Translator:
    """Searches end at as many finished hypotheses as there are beams; scores are divided by lengths."""

    def __init__(self, translator: ctranslate2.Translator) -> None:
        self.translator = translator

    def run(self, work: answering.Work) -> list[list[int]]:
        found = self.translator.translate_batch(
            words(work.inputs), beam_size=work.beams, max_decoding_length=work.new_tokens, min_decoding_length=0,
            patience=1.0, length_penalty=1.0,
        )  # fmt: skip
        return [[int(token.removeprefix("w")) for token in result.hypotheses[0]] for result in found]


def words(rows: list[list[int]]) -> list[list[str]]:
    return [[f"w{token}" for token in row] for row in rows]


if __name__ == "__main__":
    answering.main(convert, load, PACKAGES)
