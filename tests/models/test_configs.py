"""A configuration is right, or says everything that is wrong with it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeformer.models.checkpoint import read_config
from edgeformer.models.configs.paper import TransformerConfig, preset
from edgeformer.runtime.errors import CheckpointError, ConfigError

NAN, INFINITY = float("nan"), float("inf")
SIZES = "vocab_size d_model num_heads num_encoder_layers num_decoder_layers d_ff max_positions".split()


def config(**changes: Any) -> TransformerConfig:
    return TransformerConfig(**{"vocab_size": 30, **changes})


def problems(**changes: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        config(**changes)
    return caught.value.problems


# The paper's choices


def test_the_defaults_are_the_papers() -> None:
    paper = config()
    assert (paper.activation, paper.norm_placement, paper.positions) == ("relu", "post", "sinusoidal")
    assert paper.scale_embeddings
    assert preset("base", vocab_size=30) == paper


def test_the_presets_are_table_3_of_the_paper() -> None:
    base, big = preset("base"), preset("big")
    assert base.vocab_size == big.vocab_size == 37000
    assert (base.d_model, base.num_heads, base.d_ff, base.dropout) == (512, 8, 2048, 0.1)
    assert (big.d_model, big.num_heads, big.d_ff, big.dropout) == (1024, 16, 4096, 0.3)
    for one in (base, big):
        assert (one.num_encoder_layers, one.num_decoder_layers, one.head_dim) == (6, 6, 64)


def test_a_preset_takes_changes() -> None:
    assert preset("big", vocab_size=100, max_positions=64, dropout=0.0) == dataclasses.replace(
        preset("big"), vocab_size=100, max_positions=64, dropout=0.0
    )


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"there is no 'huge'; known: base, big"):
        preset("huge")


def test_a_preset_refuses_a_change_of_what_is_not_there() -> None:
    with pytest.raises(ConfigError, match="preset base: key 'width' is not understood"):
        preset("base", width=3)


# Wrong values


@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, "8", None, True, [8]], ids=repr)
@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_a_whole_number_of_at_least_1(name: str, value: object) -> None:
    assert problems(**{name: value}) == (f"{name} is {value!r}, expected a whole number of at least 1",)


@pytest.mark.parametrize("name", ["pad_token_id", "bos_token_id", "eos_token_id"])
@pytest.mark.parametrize("value", [-1, 30, 1.0, "1", None], ids=repr)
def test_a_special_token_is_in_the_vocabulary(name: str, value: object) -> None:
    assert problems(**{name: value}) == (f"{name} is {value!r}, outside the vocabulary of 30",)


@pytest.mark.parametrize(
    ("name", "known"),
    [("activation", "relu, gelu, silu"), ("norm_placement", "post, pre"), ("positions", "sinusoidal, learned")],
)
@pytest.mark.parametrize("value", ["swish", "RELU", "", None, 1, ["relu"], {}], ids=repr)
def test_a_choice_is_one_of_the_known(name: str, known: str, value: object) -> None:
    assert problems(**{name: value}) == (f"{name} is {value!r}, expected one of {known}",)


@pytest.mark.parametrize("value", [-0.1, 1, 1.0, 30, NAN, INFINITY, "0.1", None, True, [0.1]], ids=repr)
def test_dropout_is_from_0_up_to_1(value: object) -> None:
    assert problems(dropout=value) == (f"dropout is {value!r}, expected a number from 0 up to 1",)


@pytest.mark.parametrize("value", [0, 0.0, -1e-5, NAN, "1e-5", None], ids=repr)
def test_norm_eps_is_above_0(value: object) -> None:
    assert problems(norm_eps=value) == (f"norm_eps is {value!r}, expected a number above 0",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("norm_eps", True), ("norm_eps", INFINITY), ("dropout", False), ("pad_token_id", True), ("eos_token_id", False),
        ("scale_embeddings", "false"), ("scale_embeddings", None), ("scale_embeddings", 1),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_not_taken_for_what_it_resembles(name: str, value: object) -> None:
    assert [problem.split()[0] for problem in problems(**{name: value})] == [name]


def test_heads_share_the_width_evenly() -> None:
    assert problems(d_model=20, num_heads=3) == ("d_model 20 is not a multiple of num_heads 3",)


def test_sinusoids_need_an_even_width_and_learned_positions_do_not() -> None:
    (problem,) = problems(d_model=15, num_heads=3)
    assert problem == "d_model 15 is odd; sinusoidal positions come in pairs of sine and cosine"
    assert config(d_model=15, num_heads=3, positions="learned").head_dim == 5


@pytest.mark.parametrize(
    "changes",
    [
        {"d_ff": 1}, {"num_heads": 1}, {"num_heads": 512}, {"vocab_size": 3}, {"max_positions": 1}, {"dropout": 0},
        {"norm_eps": 1}, {"pad_token_id": 29}, {"pad_token_id": 2}, {"bos_token_id": 2},
    ],
    ids=str,
)  # fmt: skip
def test_the_edges_of_what_is_allowed_are_allowed(changes: dict[str, Any]) -> None:
    assert dataclasses.asdict(config(**changes)).items() >= changes.items()


def named(found: tuple[str, ...]) -> set[str]:
    return {problem.split()[0] for problem in found}


def test_everything_that_is_wrong_comes_in_one_error() -> None:
    found = problems(vocab_size=0, d_model=-8, num_heads="x", d_ff=1.5, activation="tanh", positions="rope", dropout=2,
                     norm_eps=0)  # fmt: skip
    assert named(found) == set("vocab_size d_model num_heads d_ff activation positions dropout norm_eps".split())
    assert len(found) == 8


def test_a_wrong_size_hides_no_other_problem() -> None:
    found = problems(num_heads=0, d_model=15, d_ff=0, pad_token_id=-1, eos_token_id=30, norm_placement="mid")
    assert named(found) == {"num_heads", "d_model", "d_ff", "pad_token_id", "eos_token_id", "norm_placement"}
    assert len(found) == 6


def test_the_message_lists_the_problems_one_to_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        config(d_ff=0, dropout=2)
    first, *others = str(caught.value).splitlines()
    assert first.endswith(": ")
    assert others == [f"  - {problem}" for problem in caught.value.problems]
    assert len(others) == 2


def test_a_config_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().d_model = 3  # type: ignore[misc]
    with pytest.raises(ConfigError):
        dataclasses.replace(config(), d_model=3)


# config.json


def test_a_config_survives_json() -> None:
    before = preset("big", norm_placement="pre", positions="learned", activation="silu", eos_token_id=7)
    text = json.dumps(before.to_dict())
    assert json.loads(text)["model_type"] == "transformer"
    assert TransformerConfig.from_dict(json.loads(text)) == before


def test_a_key_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig.from_dict({"vocab_size": 30, "rope_theta": 1e4, "num_kv_heads": 2})
    assert caught.value.problems == ("key 'rope_theta' is not understood", "key 'num_kv_heads' is not understood")


def test_missing_and_unknown_keys_come_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig.from_dict({"vocabulary": 30})
    assert caught.value.problems == ("key 'vocabulary' is not understood", "key 'vocab_size' is missing")


@pytest.mark.parametrize("keys", [{"vocab_size": 30}, {}], ids=["complete", "without vocab_size"])
def test_unknown_keys_hide_no_wrong_value(keys: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as caught:
        TransformerConfig.from_dict({**keys, "width": 3, "d_ff": 0, "dropout": 2})
    wrong = [problem for problem in caught.value.problems if "missing" not in problem]
    assert [problem.split()[:2] for problem in wrong] == [["key", "'width'"], ["d_ff", "is"], ["dropout", "is"]]
    assert ("key 'vocab_size' is missing" in caught.value.problems) == (not keys)


def write(folder: Path, content: str | bytes) -> Path:
    (folder / "config.json").write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def test_read_config_reads_what_was_written(tmp_path: Path) -> None:
    before = preset("base", vocab_size=40, max_positions=9)
    assert read_config(write(tmp_path, json.dumps(before.to_dict()))) == before


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json is missing") as caught:
        read_config(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"model_type": "transformer", "vocab_si', "model_type: transformer", b"\xff\xfe{}", b"\x80\x04\x95"],
    ids=repr,
)
def test_a_damaged_config_is_named(tmp_path: Path, content: str | bytes) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json is not JSON") as caught:
        read_config(write(tmp_path, content))
    assert str(tmp_path) in str(caught.value)


def test_a_config_that_nests_without_end_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json is not JSON"):
        read_config(write(tmp_path, "[" * 100_000))


def test_a_config_that_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "content", ['{"model_type": "wav2vec2", "hidden_size": 7}', "{}", '{"vocab_size": 30}', "[]", "null", "3", '"text"']
)
def test_a_foreign_config_is_refused_with_the_known_types(tmp_path: Path, content: str) -> None:
    with pytest.raises(ConfigError, match=r"model_type is .*; known: .*transformer") as caught:
        read_config(write(tmp_path, content))
    assert str(tmp_path) in str(caught.value)


def test_a_wrong_value_in_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="d_ff is 0"):
        read_config(write(tmp_path, json.dumps({**config().to_dict(), "d_ff": 0})))


@pytest.mark.parametrize("wrong", [{"d_ff": 0}, {"width": 3}], ids=str)
def test_the_error_says_in_which_file(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(write(tmp_path, json.dumps({**config().to_dict(), **wrong})))
    assert str(tmp_path / "config.json") in str(caught.value)


# Borders


@pytest.mark.parametrize("module", ["edgeformer.models", "edgeformer.models.configs"])
def test_reading_a_configuration_costs_no_torch(module: str) -> None:
    heavy = {"torch", "onnx", "onnxruntime", "onnx_ir", "safetensors"}
    program = f"import sys, {module}; print(*{heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
