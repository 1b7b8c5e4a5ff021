"""An encoder's graph: standard fused operators, every head, rewritten for the CPU without a change of its outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from edgeformer.exporter.encoder_golden import encoder_sample
from edgeformer.exporter.encoder_graphs import describe_encoder, export_encoder_only, sizes_of_encoder
from edgeformer.exporter.encoder_parity import check_encoder
from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.exporter.ort_cpu import rewrite
from edgeformer.models.bert import Bert
from edgeformer.models.configs.bert import BertConfig
from edgeformer.models.configs.encoder_heads import HeadConfig
from edgeformer.models.configs.sentence_encoders import Pooling
from edgeformer.runtime import load_encoder, names
from edgeformer.runtime.encoder_records import LAST_HIDDEN_STATE, TOKEN_TYPE_IDS
from edgeformer.runtime.errors import ModuleError, TargetError

from .graphs import Arrays, operators, run

LAYERS = 2
HEADS: dict[str, tuple[int, HeadConfig]] = {  # with how many token types
    "states": (0, HeadConfig("hidden-states")),
    "sentences": (2, HeadConfig("embedding", pooling=Pooling(("first", "max", "mean", "mean-sqrt"), normalize=True))),
    "texts": (2, HeadConfig("sequence-classes", ("no", "yes", "perhaps"))),
    "tokens": (1, HeadConfig("token-classes", ("O", "B", "I", "E"))),
    "masks": (2, HeadConfig("masked-tokens")),
}


def make_encoder(name: str) -> Bert:
    types, head = HEADS[name]
    config = BertConfig(
        vocab_size=71, d_model=32, num_layers=LAYERS, num_heads=4, d_ff=64, position_rows=23, first_position=2,
        max_positions=21, token_types=types, output=head,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Bert(config)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model.requires_grad_(False).eval()


@pytest.fixture(scope="module")
def graph_of() -> Callable[[str], ir.Model]:
    """A fresh copy of the portable graph of one of `HEADS`."""
    made: dict[str, ir.Model] = {}

    def get(name: str) -> ir.Model:
        if name not in made:
            model = make_encoder(name)
            made[name] = export_encoder_only(model, describe_encoder(model))
        return made[name].clone()

    return get


def inputs(lengths: tuple[int, ...] = (9, 1, 6), source_len: int = 9) -> Arrays:
    rng = np.random.default_rng(0)
    return {
        names.INPUT_IDS: rng.integers(0, 71, (len(lengths), source_len)),
        names.SOURCE_LENGTHS: np.array(lengths),
        TOKEN_TYPE_IDS: rng.integers(0, 2, (len(lengths), source_len)),
        names.LOGITS_AT: np.array([[length // 2, 0] for length in lengths]),
    }


def expected(name: str, given: Arrays) -> dict[str, Tensor]:
    model = make_encoder(name)
    taken = {key: torch.from_numpy(given[key]) for key in describe_encoder(model).inputs()}
    return dict(model.encode(**taken))


def assert_equal(name: str, found: Arrays, given: Arrays, tolerance: float) -> None:
    """On what is no padding."""
    for key, output in expected(name, given).items():
        for row, other, length in zip(found[key], output.numpy(), given[names.SOURCE_LENGTHS], strict=True):
            of_tokens = key == LAST_HIDDEN_STATE or name == "tokens"
            part = slice(0, length) if of_tokens else slice(None)
            np.testing.assert_allclose(row[part], other[part], rtol=0, atol=tolerance, err_msg=key)


@pytest.mark.parametrize("name", HEADS)
def test_the_graph_gives_what_pytorch_gives(graph_of: Callable[[str], ir.Model], name: str) -> None:
    graph = graph_of(name)
    for given in (inputs(), inputs((21,), 21), inputs((1, 2, 3, 4, 5), 7)):
        assert_equal(name, run(graph, given), given, 2e-5)


@pytest.mark.parametrize("name", HEADS)
def test_the_graph_is_what_its_record_says(graph_of: Callable[[str], ir.Model], name: str) -> None:
    graph, record = graph_of(name), describe_encoder(make_encoder(name))

    def shapes(values: Any) -> dict[str, tuple[str | int, ...]]:
        return {v.name: tuple(dim if isinstance(dim, int) else str(dim.value) for dim in v.shape) for v in values}

    assert shapes(graph.graph.inputs) == record.inputs()
    assert shapes(graph.graph.outputs) == record.outputs()


@pytest.mark.parametrize("name", HEADS)
def test_torch_exports_fused_operators(graph_of: Callable[[str], ir.Model], name: str) -> None:
    found = operators(graph_of(name))
    assert found["Attention"] == LAYERS
    assert found["Gelu"] == LAYERS + (name == "masks")
    assert found["LayerNormalization"] == 2 * LAYERS + 1 + (name == "masks")
    assert found.keys().isdisjoint({"Erf", "Softmax", "ReduceMean", "Pow"})


@pytest.mark.parametrize("name", HEADS)
def test_rewritten_for_the_cpu_nothing_changes(graph_of: Callable[[str], ir.Model], name: str) -> None:
    graph = graph_of(name)
    rewrite(graph, "fp32")
    found = operators(graph)
    assert found["MultiHeadAttention"] == LAYERS
    assert "Attention" not in found
    assert found["Split"] == LAYERS  # queries, keys and values are one product
    if name == "masks":
        (picking,) = (node for node in graph.graph if node.op_type == "GatherND")
        assert picking.attributes["batch_dims"].as_int() == 1
    given = inputs()
    assert_equal(name, run(graph, given), given, 2e-5)


@pytest.mark.parametrize("precision", ["int8", "int8-rows"])
def test_rounded_weights_come_near(graph_of: Callable[[str], ir.Model], precision: str) -> None:
    graph = graph_of("sentences")
    rewrite(graph, precision)
    found, given = operators(graph), inputs()
    assert "MatMul" not in found
    assert found["MatMulNBits"] + found["RowQuantizedMatMul"] == 4 * LAYERS
    vectors, reference = run(graph, given)["sentence_embedding"], expected("sentences", given)["sentence_embedding"]
    np.testing.assert_allclose(vectors, reference, rtol=0, atol=0.05)
    assert np.abs(vectors - reference.numpy()).max() > 1e-6


# Samples


def test_a_sample_holds_a_few_numbers_of_a_wide_output() -> None:
    model = make_encoder("sentences")
    sample = encoder_sample(model, describe_encoder(model), (5, 6, 7))
    assert (sample.token_type_ids, sample.positions, len(sample.columns)) == ((0, 0, 1), (), 64)
    types = torch.tensor([sample.token_type_ids])
    vector = model.encode(torch.tensor([[5, 6, 7]]), torch.tensor([3]), types)["sentence_embedding"][0]
    np.testing.assert_allclose(sample.values, vector[list(sample.columns)][None], rtol=1e-6)


def test_a_sample_of_tokens_holds_the_first_the_middle_and_the_last() -> None:
    model = make_encoder("tokens")
    sample = encoder_sample(model, describe_encoder(model), (5, 6, 7, 8, 9, 10, 11))
    assert (sample.token_type_ids, sample.positions, sample.columns) == ((), (0, 3, 6), ())
    assert [len(row) for row in sample.values] == [4, 4, 4]


# Modules of one's own


class Averages(nn.Module):
    """An encoder that this project has never seen: each token's hidden state is the average of those up to it."""

    @dataclasses.dataclass(frozen=True)
    class Config:
        vocab_size: int = 40
        max_positions: int = 16
        d_model: int = 6
        num_layers: int = 1
        num_heads: int = 1
        head_dim: int = 6
        pad_token_id: int = 0
        has_token_types: bool = False
        head: str = "sequence-classes"
        labels: tuple[str, ...] = ("left", "right")
        scoring: str = "softmax"

    def __init__(self) -> None:
        super().__init__()
        self.config = self.Config()
        self.table, self.classes = nn.Embedding(40, 6), nn.Linear(6, 2)

    def encode(self, input_ids: Tensor, source_lengths: Tensor) -> dict[str, Tensor]:
        counts = torch.arange(1, input_ids.shape[1] + 1)[None, :, None]
        states = self.table(input_ids).cumsum(1) / counts
        last = states[torch.arange(input_ids.shape[0]), source_lengths - 1]
        return {"last_hidden_state": states, "logits": self.classes(last)}


def test_a_module_of_ones_own_goes_the_road(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Averages()
    manifest = export_module(module, tmp_path / "bundle")
    assert (manifest.kind, manifest.model_type) == ("encoder", "Averages")
    optimize_bundle(tmp_path / "bundle", "ort-cpu", "fp32")
    with pytest.raises(TargetError, match="ort-cuda is for models that generate; for an encoder, take ort-cpu"):
        optimize_bundle(tmp_path / "bundle", "ort-cuda")
    model = load_encoder(tmp_path / "bundle")
    assert model.artifact.name == "ort-cpu-fp32"
    assert all(check.passed for check in check_encoder(model, model.record.samples))
    rows = [[5, 6, 7], [8], [9, 10, 11, 12, 13]]
    for row, found in zip(rows, model.classify(rows), strict=True):
        logits = module.encode(torch.tensor([row]), torch.tensor([len(row)]))["logits"][0]
        scores = dict(zip(("left", "right"), logits.softmax(0).tolist(), strict=True))
        assert {score.label: score.score for score in found.scores} == pytest.approx(scores, abs=1e-6)


def test_what_a_module_lacks_is_named(tmp_path: Path) -> None:
    module = Averages()
    module.config = dataclasses.make_dataclass("Config", [("vocab_size", int, 40)])()
    with pytest.raises(ModuleError) as caught:
        export_module(module, tmp_path / "bundle")
    assert "its config has no `head`" in caught.value.problems
    assert "its config has no `scoring`" in caught.value.problems


def test_what_a_module_s_config_says_must_make_sense(tmp_path: Path) -> None:
    module = Averages()
    module.config = Averages.Config(vocab_size=0, head="words", labels=(), scoring="rank")
    with pytest.raises(ModuleError) as caught:
        export_module(module, tmp_path / "bundle")
    assert [problem.partition(" is ")[0] for problem in caught.value.problems] == [
        "config.vocab_size", "config.head", "config.scoring"
    ]  # fmt: skip
    module.config = Averages.Config(labels=())
    with pytest.raises(ModuleError, match="expected a name for each class"):
        export_module(module, tmp_path / "bundle")


def test_sizes_say_what_an_encoder_is() -> None:
    sizes = sizes_of_encoder(make_encoder("states"))
    assert dataclasses.asdict(sizes) == {
        "vocab_size": 71, "num_layers": 2, "num_heads": 4, "num_kv_heads": 4, "head_dim": 8, "max_positions": 21,
        "source_vocab_size": 0, "max_source_positions": 0,
    }  # fmt: skip
