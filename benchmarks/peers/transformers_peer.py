"""Hugging Face's transformers on PyTorch, eager or compiled; runs in the environment of benchmarks/peer_speed.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import answering
import padding
import torch
from transformers import AutoModel, AutoModelForCausalLM, CompileConfig

PACKAGES = ("transformers", "torch")


def convert(kind: str, checkpoint: Path, output: Path, form: str) -> None:
    """The checkpoint is read as it is."""
    if kind == "paper":
        raise answering.CannotError("transformers has no such model")
    shutil.copytree(checkpoint, output)


def load(kind: str, folder: Path, form: str, threads: int) -> answering.Run:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    if kind == "encoder":
        model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32, add_pooling_layer=False).eval()
        return padding.Encoder(torch.compile(model, dynamic=True) if form == "compiled" else model).run
    options: dict[str, Any] = {}
    if form == "compiled":
        # A cache of fixed size is what lets `generate` compile; CPUs have to ask for it.
        compiling: Any = CompileConfig(mode="default")
        compiling._compile_all_devices = True
        options = {"cache_implementation": "static", "compile_config": compiling}
    decoder: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return padding.Decoder(decoder.eval(), options).run


if __name__ == "__main__":
    answering.main(convert, load, PACKAGES)
