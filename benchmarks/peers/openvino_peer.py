"""OpenVINO on models that optimum-intel exports; runs in an environment of its own.

In fp32 it is asked for fp32 arithmetic and caches, which are not its defaults on every CPU; with weights in fewer bits
it keeps its defaults, 8-bit caches among them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import answering
import padding
import torch

# optimum-intel requires torchvision, whose builds on PyPI fail beside a CPU's build of torch; models of text need none.
sys.modules["torchvision"] = None  # type: ignore[assignment]

from optimum.intel import (  # noqa: E402
    OVModelForCausalLM,
    OVModelForFeatureExtraction,
    OVWeightQuantizationConfig,
)

PACKAGES = ("openvino", "optimum-intel", "nncf")
CLASSES = {"decoder": OVModelForCausalLM, "encoder": OVModelForFeatureExtraction}
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


def convert(kind: str, checkpoint: Path, output: Path, form: str) -> None:
    options: dict[str, Any] = {
        "fp32": {"load_in_8bit": False},
        "int8": {"quantization_config": OVWeightQuantizationConfig(bits=8)},
        # Its usual group of 128 does not divide 576.
        "int4": {"quantization_config": OVWeightQuantizationConfig(bits=4, sym=True, group_size=64, ratio=1.0)},
    }[form]
    CLASSES[kind].from_pretrained(checkpoint, export=True, compile=False, **options).save_pretrained(output)


def load(kind: str, folder: Path, form: str, threads: int) -> answering.Run:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    config = {"INFERENCE_NUM_THREADS": str(threads), "PERFORMANCE_HINT": "LATENCY", "CACHE_DIR": ""}
    model = CLASSES[kind].from_pretrained(folder, ov_config=config | (EXACT if form == "fp32" else {}))
    return padding.Encoder(model).run if kind == "encoder" else padding.Decoder(model, {}).run


if __name__ == "__main__":
    answering.main(convert, load, PACKAGES)
