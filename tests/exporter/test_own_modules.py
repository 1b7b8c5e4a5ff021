"""Modules that the project has never seen: found, checked, exported, and decoded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgeformer.exporter import reference
from edgeformer.exporter.exporting import export_module
from edgeformer.exporter.own_modules import check_module, is_module_name, make_module
from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.errors import InputError, ModuleError, NotEnoughMemoryError, OptionError

from .own_decoder import Config, OwnDecoder, make

PROMPTS = [[5], [3, 4, 9, 11, 30, 7, 8], [], [12, 13]]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "bundle"
    manifest = export_module(make(), folder)
    assert (manifest.kind, manifest.model_type) == ("decoder", "OwnDecoder")
    return folder


@pytest.fixture(scope="module")
def model(bundle: Path) -> Model:
    return load(bundle, "onnx", threads=1)


def test_a_ragged_batch_of_prompts_says_what_pytorch_says(model: Model) -> None:
    found = [list(result.token_ids) for result in model.generate(PROMPTS, GenerationConfig(max_new_tokens=20))]
    assert found == reference.greedy(make(), PROMPTS, 20)


def test_beams_say_what_pytorch_says(model: Model) -> None:
    config = GenerationConfig(max_new_tokens=12, num_beams=3, num_return_sequences=3)
    for prompt, result in zip(PROMPTS, model.generate(PROMPTS, config), strict=True):
        expected = reference.beam_search(make(), prompt, 12, 3)
        assert [list(hypothesis.token_ids) for hypothesis in result.hypotheses] == [ids for ids, _ in expected]


def test_scores_are_pytorchs(model: Model) -> None:
    targets = [[4, 5, 6], [7], [8, 9], []]
    found = model.score(PROMPTS, targets)
    for prompt, target, score in zip(PROMPTS, targets, found, strict=True):
        np.testing.assert_allclose(score.token_log_probs, reference.log_probs(make(), prompt, target), rtol=1e-5)


def test_a_text_ends_where_the_positions_do_each_row_at_its_own(model: Model) -> None:
    """79 of 80 positions taken leave room for one token in the cache, and for one more that needs no place."""
    own, longest = make(), [5] * 79
    config = GenerationConfig(max_new_tokens=40, min_new_tokens=40)
    long, short = model.generate([longest, [5]], config)
    assert (len(long.token_ids), long.finish_reason) == (2, "length")
    assert len(short.token_ids) == 40
    (expected,) = reference.greedy(own, [longest], 2)
    assert list(long.token_ids) == expected
    with pytest.raises(InputError, match="81 tokens, the model has 80 positions"):
        model.generate([[5] * 81])


def test_a_session_steps_as_generate_does(model: Model) -> None:
    expected = model.generate([[5, 6]], GenerationConfig(max_new_tokens=5))[0].token_ids
    with model.session(batch=1) as session:
        logits, said = session.step([[5, 6]]), []
        for _ in range(5):
            said.append(int(logits[0, -1].argmax()))
            logits = session.step([[said[-1]]])
    assert tuple(said) == expected


def test_a_session_of_a_language_model_has_no_inputs(model: Model) -> None:
    with pytest.raises(InputError, match="reads no source"):
        model.session([[5, 6]])
    with pytest.raises(OptionError, match="batch is 0"):
        model.session(batch=0)
    with pytest.raises(NotEnoughMemoryError, match=r"for 1000000000 rows of 1 tokens .* are free: \d+ rows would fit"):
        model.session(batch=10**9)
    model.session(batch=2).close()


def test_without_a_tokenizer_text_is_refused_and_ids_are_not(model: Model) -> None:
    with pytest.raises(InputError, match="has no tokenizer: give token ids"):
        model.generate("hello")
    assert model.generate([[5]], GenerationConfig(max_new_tokens=3))[0].text == ""


# Found by name


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a.b:c", True), ("a:c", True), ("a", False), ("a/b:c", False), ("C:\\folder", False), ("a:", False)],
)
def test_a_module_is_told_from_a_folder(text: str, expected: bool) -> None:
    assert is_module_name(text) == expected


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "found_by_name.py").write_text("import torch\nmodule = torch.nn.Linear(2, 3)\ndef number(): return 3\n")
    (tmp_path / "lacks_another.py").write_text("import nowhere_to_be_found\n")
    return tmp_path


def test_a_module_in_the_current_folder_is_found(here: Path) -> None:
    assert isinstance(make_module("found_by_name:module"), nn.Linear)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absent:make", "there is no module 'absent'"),
        ("absent.deep:make", "there is no module 'absent'"),
        ("found_by_name:nothing", "found_by_name has no 'nothing'"),
        ("found_by_name:number", "number gave 3, expected a torch module"),
    ],
)
def test_what_is_not_found_is_named(here: Path, name: str, said: str) -> None:
    with pytest.raises(ModuleError, match=said):
        make_module(name)


def test_what_a_found_module_lacks_is_no_missing_module(here: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        make_module("lacks_another:make")


# Checked


def problems(module: nn.Module) -> str:
    with pytest.raises(ModuleError) as caught:
        check_module(module)
    return str(caught.value)


def test_a_module_that_can_nothing_is_refused() -> None:
    assert "neither `step` nor `encode`" in problems(nn.Linear(2, 2))


def test_all_that_is_missing_is_named() -> None:
    class Half(nn.Module):
        def step(self, input_ids: Tensor) -> Tensor:
            return input_ids

    said = problems(Half())
    for part in ("its `step` does not take 4 arguments", "has no `forward`", "has no `config`", "num_kv_heads"):
        assert part in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_kv_heads": 4}, "num_heads 6 is no multiple of num_kv_heads 4"),
        ({"max_positions": 0}, "config.max_positions is 0"),
        ({"head_dim": 10**9}, "config.head_dim is 1000000000, expected at most 1048576"),
        ({"eos_token_ids": (31,)}, "token 31 is outside the vocabulary of 31"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    module = OwnDecoder()
    module.config = Config(**changes)
    assert said in problems(module)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_parameter_that_is_not_finite_is_named(value: float) -> None:
    module = make()
    name, parameter = next(iter(module.named_parameters()))
    with torch.no_grad():
        parameter.view(-1)[0] = value
    assert f"parameter {name} holds NaN or infinite values" in problems(module)


def test_a_module_whose_step_is_not_its_forward_is_not_written(tmp_path: Path) -> None:
    class Wrong(OwnDecoder):
        def forward(self, input_ids: Tensor) -> Tensor:
            return super().forward(input_ids).roll(1, -1)

    module = Wrong()
    module.load_state_dict(make().state_dict())
    with pytest.raises(Exception, match="does not give what PyTorch gives"):
        export_module(module, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
    assert torch.is_grad_enabled()
