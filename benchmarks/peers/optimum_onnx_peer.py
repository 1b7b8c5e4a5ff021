"""ONNX Runtime on graphs that optimum-onnx exports; runs in an environment of its own.

8 bits are optimum's dynamic quantization: weights by output, activations at run time.
"""

from __future__ import annotations

from pathlib import Path

import answering
import onnxruntime
import padding
import torch
from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForFeatureExtraction, ORTQuantizer
from optimum.onnxruntime.configuration import AutoQuantizationConfig

PACKAGES = ("optimum-onnx", "onnxruntime", "transformers")
CLASSES = {"decoder": ORTModelForCausalLM, "encoder": ORTModelForFeatureExtraction}
QUANTIZED = "model_quantized.onnx"


def convert(kind: str, checkpoint: Path, output: Path, form: str) -> None:
    model = CLASSES[kind].from_pretrained(checkpoint, export=True)
    model.save_pretrained(output)
    if form == "int8":
        quantizer = ORTQuantizer.from_pretrained(output, file_name="model.onnx")
        how = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=True)
        quantizer.quantize(save_dir=output, quantization_config=how)
        for path in output.glob("model.onnx*"):
            path.unlink()


def load(kind: str, folder: Path, form: str, threads: int) -> answering.Run:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads, session.inter_op_num_threads = threads, 1
    file = QUANTIZED if form == "int8" else "model.onnx"
    model = CLASSES[kind].from_pretrained(folder, file_name=file, session_options=session)
    return padding.Encoder(model).run if kind == "encoder" else padding.Decoder(model, {}).run


if __name__ == "__main__":
    answering.main(convert, load, PACKAGES)
