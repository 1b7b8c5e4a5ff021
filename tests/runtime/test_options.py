"""Every option is checked when it is given, and a key that is not supported is never ignored."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgeformer.runtime import GenerationConfig, load
from edgeformer.runtime.bundle import record_file
from edgeformer.runtime.errors import EdgeformerError, OptionError

WRONG = [
    ({"max_new_tokens": 0}, "max_new_tokens is 0, expected a whole number of at least 1"),
    ({"max_new_tokens": -1}, "max_new_tokens is -1, expected a whole number of at least 1"),
    ({"max_new_tokens": 2.0}, "max_new_tokens is 2.0, expected a whole number of at least 1"),
    ({"max_new_tokens": True}, "max_new_tokens is True, expected a whole number of at least 1"),
    ({"max_new_tokens": "9"}, "max_new_tokens is '9', expected a whole number of at least 1"),
    ({"min_new_tokens": -1}, "min_new_tokens is -1, expected a whole number of at least 0"),
    ({"min_new_tokens": None}, "min_new_tokens is None, expected a whole number of at least 0"),
    ({"min_new_tokens": 3, "max_new_tokens": 2}, "min_new_tokens 3 is above max_new_tokens 2"),
    ({"num_beams": 0}, "num_beams is 0, expected a whole number of at least 1"),
    ({"num_beams": 1.5}, "num_beams is 1.5, expected a whole number of at least 1"),
    ({"num_return_sequences": 0}, "num_return_sequences is 0, expected a whole number of at least 1"),
    ({"num_return_sequences": 2}, "num_return_sequences is 2, but a search of 1 beams ends with 1: raise num_beams"),
    ({"num_beams": 4, "num_return_sequences": 5}, "num_return_sequences is 5, but a search of 4 beams ends with 4"),
    ({"length_penalty": "1"}, "length_penalty is '1', expected a number"),
    ({"length_penalty": True}, "length_penalty is True, expected a number"),
    ({"length_penalty": None}, "length_penalty is None, expected a number"),
    ({"length_penalty": math.nan}, "length_penalty is nan, expected a number between -100 and 100"),
    ({"length_penalty": math.inf}, "length_penalty is inf, expected a number between -100 and 100"),
    ({"length_penalty": -100.0}, "length_penalty is -100.0, expected a number between -100 and 100"),
    ({"early_stopping": "always"}, "early_stopping is 'always', expected True, False or 'never'"),
    ({"early_stopping": None}, "early_stopping is None, expected True, False or 'never'"),
    ({"early_stopping": 2}, "early_stopping is 2, expected True, False or 'never'"),
    pytest.param(
        {"early_stopping": 1},  # equal to True, but not it: taken, and then not applied
        "early_stopping is 1, expected True, False or 'never'",
    ),
]


@pytest.mark.parametrize(("options", "reason"), WRONG, ids=str)
def test_a_wrong_value_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        GenerationConfig(**options)
    assert reason in str(caught.value)


def test_the_defaults_are_greedy_search_to_the_end() -> None:
    assert GenerationConfig() == GenerationConfig(
        max_new_tokens=None, min_new_tokens=0, num_beams=1, num_return_sequences=1, length_penalty=1.0,
        early_stopping=False,
    )  # fmt: skip


def test_options_do_not_change_once_given() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GenerationConfig().num_beams = 2  # type: ignore[misc]


# generation_config.json


def test_a_checkpoints_options_are_read() -> None:
    given = {"num_beams": 4, "length_penalty": 0.6, "early_stopping": "never", "max_new_tokens": 9, "min_new_tokens": 1}
    assert GenerationConfig.from_dict(given) == GenerationConfig(**given)
    notes = {"transformers_version": "5.24.0", "use_cache": True, "pad_token_id": 0, "decoder_start_token_id": 1}
    assert GenerationConfig.from_dict({**given, **notes}) == GenerationConfig(**given)
    assert GenerationConfig.from_dict({"num_beams": None}) == GenerationConfig()


def test_every_key_that_is_not_supported_is_named() -> None:
    with pytest.raises(OptionError) as caught:
        GenerationConfig.from_dict({"num_beams": 4, "typical_p": 0.7, "num_beam_groups": 2, "top_k": None})
    message = str(caught.value)
    assert message.startswith("not supported: typical_p=0.7, num_beam_groups=2; supported: bad_words_ids, ")
    assert "top_k=" not in message


def with_options(bundle: Path, place: Path, content: str) -> Path:
    """A copy of a bundle that has a generation_config.json."""
    copy = shutil.copytree(bundle, place / "bundle")
    path = copy / "generation_config.json"
    path.write_text(content)
    manifest = json.loads((copy / "bundle.json").read_text())
    manifest["files"][path.name] = dataclasses.asdict(record_file(path))
    (copy / "bundle.json").write_text(json.dumps(manifest))
    return copy


def test_a_bundles_options_are_used_where_a_call_gives_none(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = with_options(tiny_bundle, tmp_path, '{"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 4}')
    model = load(bundle, "ort-cpu-fp32", threads=1)
    assert model.generation_config == GenerationConfig(num_beams=3, num_return_sequences=2, max_new_tokens=4)
    found, explicit = model.generate("word"), model.generate("word", model.generation_config)
    assert found[0].hypotheses == explicit[0].hypotheses
    assert len(found[0].hypotheses) == 2
    assert len(model.generate("word", GenerationConfig())[0].hypotheses) == 1
    with pytest.raises(OptionError, match="num_beams is 3: only greedy search can stream"):
        model.stream("word")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"typical_p": 0.7}', "not supported: typical_p=0.7"),
        ('{"num_beams": "four"}', "num_beams is 'four'"),
        ("[1]", "generation_config.json holds list, expected an object"),
        pytest.param(
            '{"num_beams": 4',
            "generation_config.json is not JSON",
        ),
    ],
    ids=str,
)
def test_a_bundle_with_wrong_options_is_refused(tiny_bundle: Path, tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(EdgeformerError) as caught:
        load(with_options(tiny_bundle, tmp_path, content))
    assert reason in str(caught.value)
