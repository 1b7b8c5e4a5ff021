"""Texts that end a text: as transformers' `stop_strings` do, for each row by itself, streamed as well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.runtime import GenerationConfig, Model, load
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.prompts import Prompt
from edgeformer.runtime.stopping import Stops

TOKENS = [
    "<s>",
    "</s>",
    "a",
    "b",
    "c",
    "ab",
    "bc",
    "Ġa",
    "Ġb",
    "abc",
    "cab",
    ".",
    "Ċ",
    "Ã",
    "©",
    "aa",
    "cc",
    "b.",
    "<|end|>",
]
SPECIAL = ("<s>", "</s>", "<|end|>")
PROMPTS = [[2, 3, 7], [5], [8, 9, 4, 4, 11, 2], [10, 16]]
STRINGS = [["ca"], ["bb", "."], ["a a"], ["\n"], ["é"], ["<|end|>"], ["b.", "ccc", "aaa"], ["c"]]
MOST = 24


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of two layers, whose tokens are pieces of words, half a character, and special ones."""
    folder = tmp_path_factory.mktemp("stops") / "checkpoint"
    torch.manual_seed(3)
    config = transformers.GPT2Config(vocab_size=len(TOKENS), n_embd=16, n_layer=2, n_head=2, n_positions=64)
    config.bos_token_id, config.eos_token_id = 0, 1
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.6)
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(TOKENS)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    values = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> Model:
    export_checkpoint(checkpoint, checkpoint.parent / "bundle")
    return load(checkpoint.parent / "bundle", threads=1)


@pytest.fixture(scope="module")
def theirs(checkpoint: Path) -> transformers.PreTrainedModel:
    return transformers.GPT2LMHeadModel.from_pretrained(checkpoint).eval()


@pytest.mark.parametrize("strings", STRINGS, ids=repr)
def test_a_text_ends_where_transformers_ends_it(
    model: Model, theirs: transformers.PreTrainedModel, checkpoint: Path, strings: list[str]
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    options = {"max_new_tokens": MOST, "no_repeat_ngram_size": 3, "stop_strings": strings}
    found = model.generate(PROMPTS, GenerationConfig(**options))  # type: ignore[arg-type]
    for prompt, one in zip(PROMPTS, found, strict=True):
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            expected = theirs.generate(  # type: ignore[operator]
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                pad_token_id=0,
                tokenizer=tokenizer,
                **options,
            )[0, len(prompt) :].tolist()
        ended = expected[-1] == 1
        assert list(one.token_ids) == (expected[:-1] if ended else expected)
        assert one.finish_reason == ("stop" if ended or len(expected) < MOST else one.finish_reason)


def test_some_rows_end_and_others_go_on(model: Model) -> None:
    free = model.generate(PROMPTS, config := GenerationConfig(max_new_tokens=MOST, no_repeat_ngram_size=3))
    string = free[0].text[3:6]
    stopped = model.generate(PROMPTS, config.changed(stop_strings=string))
    lengths = [len(one.token_ids) for one in stopped]
    assert lengths[0] < len(free[0].token_ids)
    assert len(set(lengths)) > 1
    for one, whole, prompt in zip(stopped, free, PROMPTS, strict=True):
        assert one.token_ids == whole.token_ids[: len(one.token_ids)]
        assert one.token_ids == model.generate([prompt], config.changed(stop_strings=[string]))[0].token_ids


def test_a_stream_ends_with_the_text(model: Model) -> None:
    for strings in STRINGS:
        config = GenerationConfig(max_new_tokens=MOST, no_repeat_ngram_size=3, stop_strings=strings)
        for prompt in PROMPTS:
            assert "".join(model.stream(prompt, config)) == model.generate([prompt], config)[0].text


def test_texts_that_are_drawn_end_by_themselves(model: Model) -> None:
    config = GenerationConfig(do_sample=True, num_return_sequences=4, seed=5, max_new_tokens=MOST, stop_strings="c")
    free = config.changed(stop_strings=())
    for one, whole in zip(model.generate(PROMPTS, config), model.generate(PROMPTS, free), strict=True):
        for hypothesis, longer in zip(one.hypotheses, whole.hypotheses, strict=True):
            kept = next((i for i in range(len(longer.token_ids)) if "c" in spelled(longer.token_ids[: i + 1])), None)
            assert hypothesis.token_ids == longer.token_ids[: None if kept is None else kept + 1]
            assert hypothesis.finish_reason == ("stop" if kept is not None else longer.finish_reason)


def spelled(ids: tuple[int, ...]) -> str:
    return "".join(TOKENS[i] for i in ids if TOKENS[i] not in SPECIAL)


def test_a_file_may_ask_for_it(model: Model) -> None:
    assert GenerationConfig.from_dict({"stop_strings": ["a", "b"]}).stop_strings == ("a", "b")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stop_strings": ""}, "none of them empty"),
        ({"stop_strings": ["a", 3]}, "none of them empty"),
        ({"stop_strings": "a", "num_beams": 2}, "only greedy search and sampling look for them, but num_beams is 2"),
        ({"stop_strings": "a", "prompt_lookup_num_tokens": 2}, "prompt_lookup_num_tokens is set"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        GenerationConfig(**options)  # type: ignore[arg-type]


def test_a_text_that_only_the_prompt_holds_stops_nothing() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.decoder = decoders.Fuse()
    stops = Stops(["aa"], tokenizer, Prompt.of([[0, 0], [1, 0]]))

    def seen() -> Iterator[list[bool]]:
        for token in (1, 0, 0):
            yield stops.by(np.array([0, 1]), np.array([token, token])).tolist()

    assert list(seen()) == [[False, False], [False, False], [True, True]]
    assert stops.stopped == {0, 1}
