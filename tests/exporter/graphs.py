"""Graphs of the tiny bundle: fresh copies to rewrite, inputs of any size, and a way to run them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx_ir.external_data import load_to_model

from edgeformer.models.transformer import Transformer
from edgeformer.runtime import names
from edgeformer.runtime.backends import older

Arrays = dict[str, NDArray[Any]]


def read(bundle: Path, role: str, artifact: str = "onnx") -> ir.Model:
    """A graph with its weights in memory: change it at will."""
    return load_to_model(ir.load(bundle / artifact / f"{role}.onnx"))


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def only(model: ir.Model, op_type: str) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == op_type]


def run(model: ir.Model, given: Arrays) -> Arrays:
    """Outputs of a graph in ONNX Runtime; what the graph does not take is left out.

    Skips where ONNX Runtime, as there is for Python 3.10, does not know the operators of opset 24.
    """
    if model.opset_imports[""] > 21 and older(onnxruntime.__version__, "1.25"):
        pytest.skip("portable graphs need onnxruntime 1.25")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    content = ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    taken = {value.name: given[value.name] for value in session.get_inputs()}
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, taken), strict=True))


def encoder_inputs(batch: int, source_len: int, vocab_size: int = 69, seed: int = 0) -> Arrays:
    """Random ids; lengths from 1 to all, the first row's all."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, source_len + 1, batch)
    lengths[0] = source_len
    return {names.INPUT_IDS: rng.integers(0, vocab_size, (batch, source_len)), names.SOURCE_LENGTHS: lengths}


def step_inputs(
    sizes: names.Sizes, *, batch: int, source_len: int, q_len: int, capacity: int, wanted: int, empty: bool = False
) -> Arrays:
    """Random ids and caches. It holds what the portable step graph takes, and what the one for a CPU takes instead."""
    rng = np.random.default_rng(1)
    lengths = np.zeros(batch, np.int64) if empty else rng.integers(0, capacity - q_len + 1, batch)
    positions = lengths[:, None] + np.arange(q_len)
    width = sizes.num_heads * sizes.head_dim

    def random(shape: names.Dims) -> NDArray[np.float32]:
        extents = {"batch": batch, "capacity": capacity, "source_len": source_len}
        return rng.normal(size=[extents.get(dim, dim) for dim in shape]).astype(np.float32)  # type: ignore[call-overload]

    return {
        names.INPUT_IDS: rng.integers(0, sizes.vocab_size, (batch, q_len)),
        names.CACHE_LENGTHS: lengths,
        names.LOGITS_AT: rng.integers(0, q_len, (batch, wanted)),
        names.SOURCE_LENGTHS: encoder_inputs(batch, source_len)[names.SOURCE_LENGTHS],
        **{name: random(names.cache_shape(sizes)) for name in names.past_names(sizes)},
        **{name: random(names.encoded_shape(sizes)) for name in names.encoded_names(sizes)},
        names.POSITIONS: np.minimum(positions, sizes.max_positions - 1),
        names.LAST_POSITIONS: positions[:, -1].astype(np.int32),
        names.TOTAL_LENGTH: np.array([positions.max() + 1], np.int32),
        names.SOURCE_SHAPE: np.array([batch, q_len, width]),
        names.ROW_SHAPE: np.array([batch, q_len, width]),
    }


def encode_in_pytorch(model: Transformer, given: Arrays) -> list[NDArray[np.float32]]:
    import torch

    with torch.inference_mode():
        encoded = model.encode(*(torch.tensor(given[name]) for name in names.encoder_inputs()))
    return [tensor.numpy() for tensor in encoded]


def step_in_pytorch(model: Transformer, sizes: names.Sizes, given: Arrays) -> Arrays:
    import torch

    def tensors(names_: list[str]) -> list[torch.Tensor]:
        return [torch.tensor(given[name]) for name in names_]

    with torch.inference_mode():
        logits, present = model.step(
            *tensors(list(names.step_inputs(sizes))),
            tensors(names.past_names(sizes)),
            tensors(names.encoded_names(sizes)),
        )
    outputs = [logits, *present]
    return dict(zip([names.LOGITS, *names.present_names(sizes)], [tensor.numpy() for tensor in outputs], strict=True))


def close(found: Arrays, expected: Arrays, tolerance: float = 1e-4) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=tolerance, err_msg=name)


def within(arrays: Arrays, lengths: NDArray[np.int64]) -> Arrays:
    """Encoded sources with what stands behind each row's length set to zero: nobody ever sees it."""
    return {
        name: array * (np.arange(array.shape[2]) < lengths[:, None])[:, None, :, None] for name, array in arrays.items()
    }
