"""Encoders give what Hugging Face's give, whatever their head, their batch and their padding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgeformer.models.checkpoint import load_checkpoint, read_config
from edgeformer.runtime.errors import CheckpointError, ConfigError

VOCABULARY, LONGEST = 67, 21
# No two sizes are the same, so that none can stand in for another.
BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 20, "num_hidden_layers": 3, "num_attention_heads": 5,
    "intermediate_size": 24, "max_position_embeddings": LONGEST, "type_vocab_size": 3,
}  # fmt: skip
ROBERTA = BERT | {"max_position_embeddings": LONGEST + 5, "type_vocab_size": 1, "pad_token_id": 4}
DISTILBERT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "dim": 20, "n_layers": 3, "n_heads": 5, "hidden_dim": 24,
    "max_position_embeddings": LONGEST,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", BERT),
    "bert, relu": ("Bert", BERT | {"hidden_act": "relu", "type_vocab_size": 1}),
    "bert, gelu_new": ("Bert", BERT | {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    "bert, untied": ("Bert", BERT | {"tie_word_embeddings": False}),
    "roberta": ("Roberta", ROBERTA),
    "roberta, silu, token types": ("Roberta", ROBERTA | {"hidden_act": "silu", "type_vocab_size": 2}),
    "xlm-roberta": ("XLMRoberta", ROBERTA),
    "camembert": ("Camembert", ROBERTA),
    "distilbert": ("DistilBert", DISTILBERT),
    "distilbert, relu": ("DistilBert", DISTILBERT | {"activation": "relu"}),
}
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
OUTPUTS = {"Model": "last_hidden_state"}
LENGTHS = (1, 7, LONGEST, 12)

Pair = tuple[Any, Any]  # Hugging Face's model, and this project's from its checkpoint


def saved(folder: Path, family: str, head: str, **changes: Any) -> Any:
    """A random model of Hugging Face's, saved."""
    prefix, sizes = FAMILIES[family]
    config = getattr(transformers, f"{prefix}Config")(**{**sizes, "num_labels": 6, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, prefix + head)(config).eval()
        for parameter in model.parameters():  # biases and gains begin at 0 and 1, where a mix-up would not show
            parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Pair]:
    made: dict[tuple[str, str], Pair] = {}

    def make(family: str, head: str) -> Pair:
        if (family, head) not in made:
            folder = tmp_path_factory.mktemp("encoder")
            theirs = saved(folder, family, head)
            made[family, head] = theirs, load_checkpoint(folder)
        return made[family, head]

    return make


def rows_of_ids(lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(5, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def padded(rows: list[list[int]], longest: int, fill: int) -> Tensor:
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])


@torch.inference_mode()
def ours(model: Any, rows: list[list[int]], types: list[list[int]] | None = None, more: int = 0) -> list[Tensor]:
    """This project's output for each row of a batch, which is padded by `more` than it must."""
    longest, lengths = max(map(len, rows)) + more, torch.tensor([len(row) for row in rows])
    token_types = padded(types, longest, 0) if types else None
    found = model(padded(rows, longest, 9), lengths, token_types)
    found = found.get("logits", found["last_hidden_state"])
    return [value if value.dim() == 1 else value[: len(row)] for value, row in zip(found, rows, strict=True)]


@torch.inference_mode()
def theirs(model: Any, row: list[int], types: list[int] | None = None) -> Tensor:
    """Hugging Face's output for one row."""
    more = {"token_type_ids": torch.tensor([types])} if types else {}
    found = model(input_ids=torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), **more)
    result: Tensor = (found.last_hidden_state if "last_hidden_state" in found else found.logits)[0]
    return result


def assert_equal(found: list[Tensor], expected: list[Tensor], tolerance: float = 2e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


every_model = pytest.mark.parametrize(("family", "head"), [(f, h) for f in FAMILIES for h in HEADS])


@every_model
def test_a_ragged_batch_gives_what_transformers_gives_each_row(
    pair_of: Callable[[str, str], Pair], family: str, head: str
) -> None:
    reference, model = pair_of(family, head)
    rows = rows_of_ids()
    assert_equal(ours(model, rows), [theirs(reference, row) for row in rows])


@every_model
def test_padding_changes_nothing(pair_of: Callable[[str, str], Pair], family: str, head: str) -> None:
    _, model = pair_of(family, head)
    rows = rows_of_ids()
    alone = [ours(model, [row])[0] for row in rows]
    assert_equal(ours(model, rows), alone, tolerance=5e-6)
    assert_equal(ours(model, rows, more=6), alone, tolerance=5e-6)


@pytest.mark.parametrize("family", ["bert", "roberta, silu, token types"])
@pytest.mark.parametrize("head", HEADS)
def test_token_types_count(pair_of: Callable[[str, str], Pair], family: str, head: str) -> None:
    reference, model = pair_of(family, head)
    rows = rows_of_ids()
    types = [[int(i >= len(row) // 2) for i in range(len(row))] for row in rows]
    found = ours(model, rows, types)
    assert_equal(found, [theirs(reference, row, kinds) for row, kinds in zip(rows, types, strict=True)])
    assert not torch.allclose(found[1], ours(model, rows)[1], atol=1e-3)


@torch.inference_mode()
def test_only_wanted_positions_reach_the_vocabulary(pair_of: Callable[[str, str], Pair]) -> None:
    reference, model = pair_of("roberta", "ForMaskedLM")
    row = rows_of_ids()[1]
    found = model.encode(torch.tensor([row]), torch.tensor([len(row)]), None, torch.tensor([[5, 2]]))["logits"]
    torch.testing.assert_close(found[0], theirs(reference, row)[[5, 2]], rtol=0, atol=2e-5)


# Checkpoints as they are found


def test_a_pretrained_model_is_loaded_without_its_head(tmp_path: Path) -> None:
    reference = saved(tmp_path, "bert", "ForPreTraining")
    change_config(tmp_path, architectures=["BertModel"])
    row = rows_of_ids()[1]
    assert_equal(ours(load_checkpoint(tmp_path), [row]), [theirs(reference.bert, row)])


def test_the_head_of_pretraining_fills_masks(tmp_path: Path) -> None:
    reference = saved(tmp_path, "bert", "ForPreTraining")
    row = torch.tensor([rows_of_ids()[1]])
    expected = reference(row).prediction_logits[0]
    assert_equal(ours(load_checkpoint(tmp_path), row.tolist()), [expected])


def test_the_first_checkpoints_call_gains_gamma_and_biases_beta(tmp_path: Path) -> None:
    reference = saved(tmp_path, "bert", "ForMaskedLM")
    tensors = load_file(tmp_path / "model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    named = {
        next((name.replace(new, past) for new, past in old.items() if name.endswith(new)), name): tensor
        for name, tensor in tensors.items()
    }
    assert len(named.keys() - tensors.keys()) == 2 * (2 * 3 + 2)
    save_file(named, tmp_path / "model.safetensors")
    row = rows_of_ids()[1]
    assert_equal(ours(load_checkpoint(tmp_path), [row]), [theirs(reference, row)])


def test_a_head_that_is_missing_is_named(tmp_path: Path) -> None:
    saved(tmp_path, "bert", "Model")
    change_config(tmp_path, architectures=["BertForTokenClassification"])
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert caught.value.problems == ("tensor classifier.weight is missing", "tensor classifier.bias is missing")


def change_config(folder: Path, **changes: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changes))


# Configurations


@pytest.fixture
def config_of(tmp_path: Path) -> Callable[..., Any]:
    """The configuration read from one of Hugging Face's, with changes."""

    def read(family: str = "bert", head: str = "ForSequenceClassification", **changes: Any) -> Any:
        prefix, sizes = FAMILIES[family]
        getattr(transformers, f"{prefix}Config")(**sizes, num_labels=3).save_pretrained(tmp_path)
        change_config(tmp_path, **{"architectures": [prefix + head], **changes})
        return read_config(tmp_path)

    return read


def test_positions_begin_behind_the_padding_token(config_of: Callable[..., Any]) -> None:
    config = config_of("roberta")
    assert (config.first_position, config.max_positions, config.position_rows) == (5, LONGEST, LONGEST + 5)
    assert (config_of("bert").first_position, config_of("distilbert").max_positions) == (0, LONGEST)


@pytest.mark.parametrize(
    ("changes", "scoring"),
    [
        ({}, "softmax"),
        ({"problem_type": "multi_label_classification"}, "sigmoid"),
        ({"problem_type": "regression"}, "none"),
        ({"id2label": {"0": "yes"}}, "sigmoid"),
        (
            {"id2label": {"0": "yes"}, "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            "none",
        ),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, "sigmoid"),
        ({"sentence_transformers": {"version": "5.0.0"}}, "softmax"),
    ],
    ids=str,
)
def test_scores_are_made_as_the_problem_asks(
    config_of: Callable[..., Any], changes: dict[str, Any], scoring: str
) -> None:
    assert config_of(**changes).scoring == scoring


def test_labels_come_in_the_order_of_their_ids(config_of: Callable[..., Any]) -> None:
    assert config_of(id2label={"1": "b", "0": "a", "10": "k", **{str(i): f"l{i}" for i in range(2, 10)}}).labels == (
        "a", "b", *(f"l{i}" for i in range(2, 10)), "k"
    )  # fmt: skip
    assert config_of(id2label=None, num_labels=None).labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"add_cross_attention": True}, "add_cross_attention is True"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish', expected one of gelu"),
        ({"embedding_size": 12}, "key 'embedding_size' is not understood"),
        ({"num_attention_heads": 3}, "the width 20 is not a multiple of the number of heads, 3"),
        ({"architectures": ["BertForQuestionAnswering"]}, "BertForQuestionAnswering"),
        ({"architectures": ["BertLMHeadModel"]}, "BertLMHeadModel"),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.ReLU"}},
            "activation is 'torch.nn.ReLU', expected",
        ),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label has the ids 0, 2, expected those from 0 to 1"),
        ({"problem_type": "ranking"}, "problem_type is 'ranking'"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
    ],
    ids=str,
)
def test_what_is_not_computed_is_refused(config_of: Callable[..., Any], changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        config_of(**changes)
    assert len(caught.value.problems) == 1


def test_every_problem_is_named_at_once(config_of: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(hidden_size=0, hidden_act="mish", embedding_size=12, vocab_size="many")
    assert len(caught.value.problems) == 4


# Sentence encoders

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
FIRST, MAX, MEAN, SQRT = (f"pooling_mode_{mode}" for mode in ("cls_token", "max_tokens", "mean_tokens",
                                                              "mean_sqrt_len_tokens"))  # fmt: skip


def make_sentence_encoder(folder: Path, modules: list[dict[str, Any]], *modes: str, **limits: Any) -> None:
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": 20, FIRST: False, MEAN: False} | dict.fromkeys(modes, True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": False, **limits}))


def expected_embedding(hidden: Tensor, mode: str) -> Tensor:
    """From the hidden states of one row without padding."""
    return {FIRST: hidden[0], MAX: hidden.max(0)[0], MEAN: hidden.mean(0), SQRT: hidden.sum(0) / len(hidden) ** 0.5}[
        mode
    ]


@pytest.mark.parametrize("normalize", [True, False], ids=["normalized", "as it is"])
@pytest.mark.parametrize("modes", [(MEAN,), (FIRST,), (MAX,), (SQRT,), (FIRST, MAX, MEAN, SQRT)], ids=str)
@torch.inference_mode()
def test_hidden_states_are_pooled_over_a_row_s_own_tokens(
    tmp_path: Path, modes: tuple[str, ...], normalize: bool
) -> None:
    reference = saved(tmp_path, "bert", "Model")
    make_sentence_encoder(tmp_path, MODULES if normalize else MODULES[:2], *modes)
    model, rows = load_checkpoint(tmp_path), rows_of_ids()
    found = model(padded(rows, LONGEST, 9), torch.tensor(LENGTHS))["sentence_embedding"]
    for row, vector in zip(rows, found, strict=True):
        hidden = theirs(reference, row)
        expected = torch.cat([expected_embedding(hidden, mode) for mode in modes])
        expected = F.normalize(expected, dim=0) if normalize else expected
        torch.testing.assert_close(vector, expected, rtol=0, atol=2e-5)


def test_a_sentence_encoder_takes_what_it_was_made_for(tmp_path: Path) -> None:
    saved(tmp_path, "roberta", "Model")
    make_sentence_encoder(tmp_path, MODULES, MEAN, max_seq_length=11)
    assert read_config(tmp_path).max_positions == 11
    make_sentence_encoder(tmp_path, MODULES, MEAN, max_seq_length=2048)
    assert read_config(tmp_path).max_positions == LONGEST


def test_what_a_sentence_encoder_has_more_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, "bert", "Model")
    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    make_sentence_encoder(tmp_path, [*MODULES[:2], dense], "pooling_mode_lasttoken", do_lower_case=True)
    (tmp_path / "config_sentence_transformers.json").write_text('{"default_prompt_name": "query"}')
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "sentence_bert_config.json", "config_sentence_transformers.json", "modules.json"
    ]  # fmt: skip
    make_sentence_encoder(tmp_path, MODULES, "pooling_mode_lasttoken")
    (tmp_path / "config_sentence_transformers.json").unlink()
    with pytest.raises(ConfigError, match="pooling_mode_lasttoken is not supported"):
        read_config(tmp_path)


def test_a_pooling_outside_the_checkpoint_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    saved(tmp_path / "inside", "bert", "Model")
    make_sentence_encoder(tmp_path, MODULES, MEAN)
    outside = MODULES[1] | {"path": "../1_Pooling"}
    (tmp_path / "inside" / "modules.json").write_text(json.dumps([MODULES[0], outside]))
    with pytest.raises(ConfigError, match="'../1_Pooling/config.json' leads out of the checkpoint"):
        read_config(tmp_path / "inside")
