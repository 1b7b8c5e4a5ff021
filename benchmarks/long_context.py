"""How much memory a long text takes, path by path: the peak of a process, above what it had when the model was loaded.

    python benchmarks/long_context.py [--lengths 1024,2048,4096,8192] [--cases 'BERT;T5'] [--json FILE]

Models have two layers, 256 wide, four heads, random weights, and more positions than any text here. A case reads one
text of so many tokens, or two of which the second has three quarters of them, and, where it writes, goes on for four
tokens. Every figure comes from a process of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_checkpoints import BART, BERT, GPT2, LLAMA, T5, randomize, write_tokenizer

from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.exporter.optimizing import optimize_bundle

POSITIONS = 32768
LONG = {"max_position_embeddings": POSITIONS}
ARTIFACTS = ("onnx", "ort-cpu-fp32")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A model, and what is read with it.

    Attributes:
        model: the class of transformers, and its configuration's without `Config`.
        sizes: the configuration.
        rows: texts that are read together.
    """

    model: tuple[str, str]
    sizes: Mapping[str, Any]
    rows: int = 1


CASES = {
    "BERT": Case(("Bert", "Model"), BERT | LONG),
    "BERT, two texts": Case(("Bert", "Model"), BERT | LONG, rows=2),
    "BART": Case(("Bart", "ForConditionalGeneration"), BART | LONG),
    "T5": Case(("T5", "ForConditionalGeneration"), T5),
    "GPT-2": Case(("GPT2", "LMHeadModel"), GPT2 | {"n_positions": POSITIONS}),
    "LLaMA": Case(("Llama", "ForCausalLM"), LLAMA | LONG),
    "LLaMA, two texts": Case(("Llama", "ForCausalLM"), LLAMA | LONG, rows=2),
    "Mistral, window of 1024": Case(("Mistral", "ForCausalLM"), LLAMA | LONG | {"sliding_window": 1024}),
}

# Runs in a process of its own: bundle, artifact, length, rows; prints bytes.
MEASURE = """
import json, sys
from edgeformer.runtime import GenerationConfig, load, load_encoder
from edgeformer.runtime.bundle import read_manifest

def status(name):
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith(name))

folder, artifact, length, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
reads = read_manifest(__import__("pathlib").Path(folder)).kind == "encoder"
model = (load_encoder if reads else load)(folder, artifact, threads=1)
texts = [[5 + i % 80 for i in range(length * (4 - row) // 4)] for row in range(rows)]
def go(texts):
    if reads:
        model.hidden_states(texts)
    else:
        model.generate(texts, GenerationConfig(max_new_tokens=4, min_new_tokens=4))
go([[5, 6, 7]])
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
go(texts)
print(json.dumps(status("VmHWM") - before))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="1024,2048,4096,8192", help="tokens of a text, with commas between")
    parser.add_argument("--cases", help="some of them, with semicolons between; all where it is missing")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    lengths = [int(length) for length in arguments.lengths.split(",")]
    cases = arguments.cases.split(";") if arguments.cases else list(CASES)
    rows = []
    print(" | ".join(("model", "artifact", *(f"{length} tokens, MB" for length in lengths))), flush=True)
    for name in cases:
        with tempfile.TemporaryDirectory(prefix="edgeformer-") as folder:
            bundle = make_bundle(CASES[name], Path(folder))
            for artifact in ARTIFACTS:
                figures = [peak(bundle, artifact, length, CASES[name].rows) for length in lengths]
                rows.append({"model": name, "artifact": artifact, "bytes": dict(zip(lengths, figures, strict=True))})
                print(" | ".join((name, artifact, *map(megabytes, figures))), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def make_bundle(case: Case, folder: Path) -> Path:
    checkpoint, bundle = folder / "checkpoint", folder / "bundle"
    torch.manual_seed(0)
    config = getattr(transformers, f"{case.model[0]}Config")(**case.sizes)
    model = getattr(transformers, "".join(case.model))(config)
    randomize(model)
    model.save_pretrained(checkpoint)
    write_tokenizer(checkpoint)
    export_checkpoint(checkpoint, bundle)
    optimize_bundle(bundle, "ort-cpu", "fp32")
    return bundle


def peak(bundle: Path, artifact: str, length: int, rows: int) -> int | None:
    """Bytes above those of the loaded model; None where the process was ended, or an allocation refused."""
    command = [sys.executable, "-c", MEASURE, str(bundle), artifact, str(length), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1:], file=sys.stderr)
    return json.loads(done.stdout) if done.returncode == 0 else None


def megabytes(figure: int | None) -> str:
    return "failed" if figure is None else f"{figure / 1e6:.0f}"


if __name__ == "__main__":
    main()
