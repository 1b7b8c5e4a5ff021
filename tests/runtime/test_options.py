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
    (
        {"num_return_sequences": 2},
        "num_return_sequences is 2, but a search with num_beams 1 ends with 1: raise num_beams",
    ),
    (
        {"num_beams": 4, "num_return_sequences": 5},
        "num_return_sequences is 5, but a search with num_beams 4 ends with 4",
    ),
    ({"length_penalty": "1"}, "length_penalty is '1', expected a number"),
    ({"length_penalty": True}, "length_penalty is True, expected a number"),
    ({"length_penalty": None}, "length_penalty is None, expected a number"),
    ({"length_penalty": math.nan}, "length_penalty is nan, expected a number between -10 and 10"),
    ({"length_penalty": math.inf}, "length_penalty is inf, expected a number between -10 and 10"),
    ({"length_penalty": -10.0}, "length_penalty is -10.0, expected a number between -10 and 10"),
    ({"early_stopping": "always"}, "early_stopping is 'always', expected True, False or 'never'"),
    ({"early_stopping": None}, "early_stopping is None, expected True, False or 'never'"),
    ({"early_stopping": 2}, "early_stopping is 2, expected True, False or 'never'"),
    pytest.param(
        {"early_stopping": 1},  # equal to True, but not it: taken, and then not applied
        "early_stopping is 1, expected True, False or 'never'",
    ),
    ({"max_length": 0}, "max_length is 0, expected a whole number of at least 1, or None"),
    ({"max_length": 9, "max_new_tokens": 3}, "max_length 9 and max_new_tokens 3 both say how long a text may be"),
    ({"min_length": 9, "min_new_tokens": 3}, "min_length 9 and min_new_tokens 3 both say how long a text must be"),
    ({"min_length": 9, "max_length": 8}, "min_length 9 is above max_length 8"),
    ({"do_sample": 1}, "do_sample is 1, expected True or False"),
    (
        {"do_sample": True, "temperature": 0.0},
        "temperature is 0.0, expected a number above 0; for the likeliest",
    ),
    ({"do_sample": True, "temperature": math.inf}, "temperature is inf, expected a number above 0"),
    ({"do_sample": True, "top_k": -1}, "top_k is -1, expected a whole number of at least 0"),
    ({"do_sample": True, "top_p": 0.0}, "top_p is 0.0, expected a number above 0 and at most 1"),
    ({"do_sample": True, "top_p": 1.1}, "top_p is 1.1, expected a number above 0 and at most 1"),
    ({"do_sample": True, "min_p": -0.1}, "min_p is -0.1, expected a number from 0 to 1"),
    ({"do_sample": True, "seed": -1}, "seed is -1, expected a whole number of at least 0, or one for each input"),
    ({"do_sample": True, "seed": []}, "seed is [], expected a whole number of at least 0, or one for each input"),
    ({"do_sample": True, "num_beams": 2}, "do_sample draws texts one by one, and num_beams is 2"),
    ({"temperature": 0.7, "seed": 3}, "temperature=0.7, seed=3 would change nothing: set do_sample as well"),
    ({"top_k": 3, "num_beams": 2}, "top_k=3 would change nothing: set do_sample as well"),
    ({"repetition_penalty": 0}, "repetition_penalty is 0, expected a number from 0.01 to 100"),
    ({"repetition_penalty": math.nan}, "repetition_penalty is nan, expected a number from 0.01 to 100"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size is -1, expected a whole number of at least 0"),
    ({"bad_words_ids": [[]]}, "bad_words_ids is [[]], expected lists of token ids, none of them empty"),
    ({"bad_words_ids": [3]}, "bad_words_ids is [3], expected lists of token ids"),
    ({"bad_words_ids": "the"}, "bad_words_ids is 'the', expected lists of token ids"),
    ({"suppress_tokens": [-1]}, "suppress_tokens is [-1], expected a list of token ids"),
    ({"suppress_tokens": 3}, "suppress_tokens is 3, expected a list of token ids"),
    ({"begin_suppress_tokens": [1.5]}, "begin_suppress_tokens is [1.5], expected a list of token ids"),
    ({"forced_bos_token_id": -2}, "forced_bos_token_id is -2, expected a token id, or None"),
    ({"forced_eos_token_id": []}, "forced_eos_token_id is [], expected a token id or a list of at least one"),
    ({"eos_token_id": True}, "eos_token_id is True, expected a token id or a list of at least one"),
    ({"forced_eos_token_id": 4, "suppress_tokens": [4]}, "forced_eos_token_id is (4,), which suppress_tokens forbids"),
    ({"renormalize_logits": None}, "renormalize_logits is None, expected True or False"),
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


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        GenerationConfig(num_beams=0, top_p=2.0, suppress_tokens=[-1])
    assert [part.split()[0] for part in str(caught.value).split("; ")] == ["num_beams", "top_p", "suppress_tokens"]


def test_sequences_are_kept_as_tuples() -> None:
    config = GenerationConfig(bad_words_ids=[[1, 2], [3]], eos_token_id=[4, 5], forced_eos_token_id=6)
    assert (config.bad_words_ids, config.ends, config.forced_eos_token_id) == (((1, 2), (3,)), (4, 5), (6,))
    assert GenerationConfig(eos_token_id=4).ends == (4,)
    assert GenerationConfig().ends == ()
    assert hash(config) == hash(dataclasses.replace(config))


@pytest.mark.parametrize(
    ("options", "changes", "left"),
    [
        ({"max_length": 9}, {"max_new_tokens": 3}, {"max_new_tokens": 3}),
        ({"max_new_tokens": 9}, {"max_length": 3}, {"max_length": 3}),
        ({"min_length": 9}, {"min_new_tokens": 3}, {"min_new_tokens": 3}),
        ({"min_length": 2, "max_length": 9}, {"max_length": 3}, {"min_length": 2, "max_length": 3}),
        ({"do_sample": True, "temperature": 0.5, "seed": 1}, {"do_sample": False}, {}),
        ({"do_sample": True, "top_p": 0.5, "max_length": 7}, {"num_beams": 4}, {"num_beams": 4, "max_length": 7}),
        ({"do_sample": True, "top_p": 0.5}, {"num_beams": 1}, {"do_sample": True, "top_p": 0.5}),
        ({"num_beams": 4}, {"do_sample": True, "top_k": 2}, {"do_sample": True, "top_k": 2}),
        ({"do_sample": True, "top_p": 0.5}, {"seed": 2}, {"do_sample": True, "top_p": 0.5, "seed": 2}),
    ],
    ids=str,
)
def test_a_change_displaces_what_cannot_hold_beside_it(
    options: dict[str, Any], changes: dict[str, Any], left: dict[str, Any]
) -> None:
    assert GenerationConfig(**options).changed(**changes) == GenerationConfig(**left)


def test_a_change_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match=r"temperature=0.5 would change nothing: set do_sample"):
        GenerationConfig().changed(temperature=0.5)
    with pytest.raises(OptionError, match=r"do_sample draws texts one by one, and num_beams is 3"):
        GenerationConfig().changed(do_sample=True, num_beams=3)
    with pytest.raises(OptionError, match="not supported: typical_p; supported: bad_words_ids"):
        GenerationConfig().changed(typical_p=0.5)


def test_greatest_lengths_beyond_the_positions_go() -> None:
    assert GenerationConfig(max_new_tokens=33, min_new_tokens=2).within(32) == GenerationConfig(min_new_tokens=2)
    assert GenerationConfig(max_length=34).within(32) == GenerationConfig()
    for config in (GenerationConfig(max_new_tokens=32), GenerationConfig(max_length=33), GenerationConfig()):
        assert config.within(32) == config


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


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (  # a Marian of old
            {
                "bad_words_ids": [[65000]], "bos_token_id": 0, "decoder_start_token_id": 65000, "eos_token_id": 0,
                "forced_eos_token_id": 0, "max_length": 512, "num_beams": 6, "pad_token_id": 65000,
                "renormalize_logits": True, "transformers_version": "4.32.0.dev0",
            },
            {
                "bad_words_ids": [[65000]], "eos_token_id": 0, "forced_eos_token_id": 0, "max_length": 512,
                "num_beams": 6, "renormalize_logits": True,
            },
        ),
        (  # a language model for chats
            {
                "bos_token_id": 128000, "do_sample": True, "eos_token_id": [128001, 128008, 128009],
                "temperature": 0.6, "max_length": 4096, "top_p": 0.9, "transformers_version": "4.42.3",
            },
            {
                "do_sample": True, "eos_token_id": (128001, 128008, 128009), "temperature": 0.6, "max_length": 4096,
                "top_p": 0.9,
            },
        ),
        (
            {
                "do_sample": True, "repetition_penalty": 1.1, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
                "eos_token_id": [151645, 151643], "pad_token_id": 151643,
            },
            {
                "do_sample": True, "repetition_penalty": 1.1, "temperature": 0.7, "top_k": 20, "top_p": 0.8,
                "eos_token_id": (151645, 151643),
            },
        ),
        (  # a summarizer
            {
                "early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "length_penalty": 2.0,
                "max_length": 142, "min_length": 56, "no_repeat_ngram_size": 3, "num_beams": 4,
                "_from_model_config": True,
            },
            {
                "early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "length_penalty": 2.0,
                "max_length": 142, "min_length": 56, "no_repeat_ngram_size": 3, "num_beams": 4,
            },
        ),
        ({"temperature": 0.6, "top_p": 0.9, "top_k": 40}, {}),  # nothing reads them
        ({"do_sample": False, "temperature": 0.0}, {}),
        ({"max_length": 20, "max_new_tokens": 8, "min_length": 1, "min_new_tokens": 2},
         {"max_new_tokens": 8, "min_new_tokens": 2}),
        ({"typical_p": 1.0, "num_beam_groups": 1, "diversity_penalty": 0.0, "use_cache": True}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_files_of_checkpoints_mean_what_they_say(content: dict[str, Any], options: dict[str, Any]) -> None:
    assert GenerationConfig.from_dict(content) == GenerationConfig(**options)


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
