"""onnxruntime-genai on graphs of its own builder; runs in an environment of its own.

Rows of unequal lengths are padded on the right, with the id of padding, by which it knows what to leave out. Padded on
the left, its answers are wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import answering
import numpy as np
import onnxruntime_genai

PACKAGES = ("onnxruntime-genai", "onnxruntime")
PAD = 0
# The largest block that divides 576, and arithmetic in int8, which are the fastest that the builder offers.
QUANTIZED = ("--extra_options", "block_size=64", "accuracy_level=4")


def convert(kind: str, checkpoint: Path, output: Path, form: str) -> None:
    options = () if form == "fp32" else QUANTIZED
    with tempfile.TemporaryDirectory() as cache:
        subprocess.run(
            [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(checkpoint), "-o", str(output),
             "-p", form, "-e", "cpu", "-c", cache, *options],
            check=True,
        )  # fmt: skip


def load(kind: str, folder: Path, form: str, threads: int) -> answering.Run:
    config = onnxruntime_genai.Config(str(folder))
    session = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": session}}}))
    return Decoder(onnxruntime_genai.Model(config)).run


class Decoder:
    def __init__(self, model: onnxruntime_genai.Model) -> None:
        self.model = model

    def run(self, work: answering.Work) -> list[list[int]]:
        longest = max(work.lengths)
        prompts = np.array([row + [PAD] * (longest - len(row)) for row in work.inputs], np.int32)  # (batch, longest)
        parameters = onnxruntime_genai.GeneratorParams(self.model)
        parameters.set_search_options(
            max_length=longest + work.new_tokens, batch_size=len(prompts), do_sample=False, num_beams=work.beams
        )
        generator = onnxruntime_genai.Generator(self.model, parameters)
        generator.append_tokens(prompts)
        while not generator.is_done():
            generator.generate_next_token()
        return [generator.get_sequence(row)[longest:].tolist() for row in range(len(prompts))]


if __name__ == "__main__":
    answering.main(convert, load, PACKAGES)
