"""A decoder family's step graph is made of fused operators, and gives in ONNX Runtime what transformers gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor

from edgeformer.exporter.onnx_graphs import export_step, sizes_of
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.runtime import names

from ..models.decoder_families import SIZES, random_rows, save, stepwise

# One variation for each way in which a graph can look.
GRAPHS = ("gpt2 scaled by layer", "llama yarn", "qwen3 window")
LAYERS = SIZES["num_hidden_layers"]


class InOnnxRuntime:
    """The step of a graph, called as a module's."""

    def __init__(self, graph: ir.Model, model: Any, path: Path) -> None:
        ir.save(graph, path)
        self.config, self.names = model.config, names.past_names(sizes_of(model))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # that caches are copied here, and not written in place
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def step(self, ids: Tensor, lengths: Tensor, at: Tensor, caches: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        given = {names.INPUT_IDS: ids, names.CACHE_LENGTHS: lengths, names.LOGITS_AT: at}
        given |= dict(zip(self.names, caches, strict=True))
        logits, *present = self.session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
        return torch.from_numpy(logits), [torch.from_numpy(array) for array in present]


@pytest.fixture(scope="module", params=GRAPHS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Any, ir.Model]:
    folder = tmp_path_factory.mktemp("checkpoint")
    reference, model = save(request.param, folder), load_checkpoint(folder)
    return request.param, reference, model, export_step(model)


def test_every_layer_is_made_of_fused_operators(case: tuple[str, Any, Any, ir.Model]) -> None:
    variation, _, _, graph = case
    count = Counter(node.op_type for node in graph.graph)
    assert (count["Attention"], count["TensorScatter"]) == (LAYERS, 2 * LAYERS)
    if variation.startswith("gpt2"):
        assert (count["LayerNormalization"], count["Gelu"]) == (2 * LAYERS + 1, LAYERS)
        return
    heads = 2 * LAYERS if variation.startswith("qwen3") else 0
    assert (count["RotaryEmbedding"], count["RMSNormalization"]) == (2 * LAYERS, 2 * LAYERS + 1 + heads)
    assert (count["Cos"], count["Sin"], count["Softmax"]) == (1, 1, 0)


def test_no_table_grows_with_the_positions(case: tuple[str, Any, Any, ir.Model]) -> None:
    """But GPT-2's, which it has learned."""
    variation, _, model, graph = case
    long = [
        value
        for value in graph.graph.initializers.values()
        if value.shape and model.config.max_positions in value.shape
    ]
    assert len(long) == variation.startswith("gpt2")


def test_in_onnx_runtime_a_ragged_batch_equals_transformers(
    case: tuple[str, Any, Any, ir.Model], tmp_path: Path
) -> None:
    _, reference, model, graph = case
    rows = random_rows([11, 5, 1])
    given = stepwise(InOnnxRuntime(graph, model, tmp_path / "step.onnx"), rows, [[4, 5, 1], [1, 0, 0], [6, 0, 0]], 16)
    for row, logits in zip(rows, given, strict=True):
        torch.testing.assert_close(logits, reference(row[None]).logits[0], rtol=0, atol=2e-5)
