"""Tokenizers go into the bundle as they are or converted, and fit the model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from edgeformer.exporter.tokenizers.preparing import convert_tokenizers, prepare_tokenizers
from edgeformer.runtime.errors import CheckpointError

from .conftest import LLAMA, write_json

Train = Callable[..., Path]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "checkpoint").mkdir()
    return tmp_path / "checkpoint"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "bundle").mkdir()
    return tmp_path / "bundle"


def save_words(path: Path, words: str) -> bytes:
    Tokenizer(models.WordLevel({word: i for i, word in enumerate(words.split())}, "a")).save(str(path))
    return path.read_bytes()


def test_tokenizer_json_is_taken_as_it_is(checkpoint: Path, bundle: Path) -> None:
    source = save_words(checkpoint / "tokenizer.json", "a b c")
    (checkpoint / "vocab.txt").write_text("x\n")  # not looked at
    prepare_tokenizers(checkpoint, bundle, 3, 3)
    assert [path.name for path in bundle.iterdir()] == ["tokenizer.json"]
    assert (bundle / "tokenizer.json").read_bytes() == source
    target = save_words(checkpoint / "target_tokenizer.json", "a b c d")
    prepare_tokenizers(checkpoint, bundle, 4, 3)
    assert (bundle / "target_tokenizer.json").read_bytes() == target


@pytest.mark.parametrize("tokenizer_class", ["LlamaTokenizer", "PreTrainedTokenizerFast"])
def test_other_files_give_roles_and_change_nothing_else(
    train: Train, checkpoint: Path, bundle: Path, tokenizer_class: str
) -> None:
    transformers = pytest.importorskip("transformers")
    shutil.copy(train(**LLAMA), checkpoint / "tokenizer.model")
    before = convert_tokenizers(checkpoint)["tokenizer.json"]
    before.save(str(checkpoint / "tokenizer.json"))
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "\u2581the"}
    config = {"tokenizer_class": tokenizer_class, "add_bos_token": False, "add_eos_token": True, **roles}
    write_json(checkpoint, config={"model_type": "llama"}, tokenizer_config=config)
    prepare_tokenizers(checkpoint, bundle, 1100, 1100)
    found = Tokenizer.from_file(str(bundle / "tokenizer.json"))
    theirs = transformers.AutoTokenizer.from_pretrained(checkpoint)
    for text in ("", "a model of the", "a</s>b"):
        assert found.encode(text).ids == theirs(text)["input_ids"], text
    ids = before.encode("a of the model").ids
    assert found.decode(ids) == theirs.decode(ids, skip_special_tokens=True) == "a of model"


def test_a_larger_vocabulary_of_the_model_is_no_problem(checkpoint: Path, bundle: Path) -> None:
    save_words(checkpoint / "tokenizer.json", "a b c")
    prepare_tokenizers(checkpoint, bundle, 64, 64)


def test_ids_without_embedding_are_refused_with_both_numbers(checkpoint: Path, bundle: Path) -> None:
    save_words(checkpoint / "tokenizer.json", "a b c d")
    save_words(checkpoint / "target_tokenizer.json", "a b c d e f")
    with pytest.raises(CheckpointError) as caught:
        prepare_tokenizers(checkpoint, bundle, 5, 2)
    assert caught.value.problems == (
        "tokenizer.json has ids up to 3, the model's vocab_size is 2: 2 tokens, such as 'c' (2), 'd' (3), have no "
        "embedding",
        "target_tokenizer.json has ids up to 5, the model's vocab_size is 5: 1 tokens, such as 'f' (5), have no "
        "embedding",
    )


def test_a_shared_tokenizer_fits_both_sides(checkpoint: Path, bundle: Path) -> None:
    save_words(checkpoint / "tokenizer.json", "a b c d")
    with pytest.raises(CheckpointError, match="ids up to 3, the model's vocab_size is 3"):
        prepare_tokenizers(checkpoint, bundle, 3, 4)


def test_a_damaged_tokenizer_is_refused(checkpoint: Path, bundle: Path) -> None:
    (checkpoint / "tokenizer.json").write_text('{"model": 1}')
    with pytest.raises(CheckpointError, match="tokenizer.json is not a tokenizer"):
        prepare_tokenizers(checkpoint, bundle, 3, 3)


def test_no_tokenizer_is_refused_with_what_was_looked_for(checkpoint: Path, bundle: Path) -> None:
    (checkpoint / "vocab.json").write_text("{}")
    with pytest.raises(CheckpointError) as caught:
        prepare_tokenizers(checkpoint, bundle, 3, 3)
    assert caught.value.problems == (
        "it has no tokenizer: looked for tokenizer.json; source.spm + target.spm + vocab.json; "
        "sentencepiece.bpe.model; spiece.model; tokenizer.model; vocab.json + merges.txt; vocab.txt",
    )


def test_a_converted_tokenizer_is_written_and_checked(train: Train, checkpoint: Path, bundle: Path) -> None:
    shutil.copy(train(**LLAMA), checkpoint / "tokenizer.model")
    prepare_tokenizers(checkpoint, bundle, 1100, 1100)
    assert Tokenizer.from_file(str(bundle / "tokenizer.json")).encode("a model").ids[0] == 1
    with pytest.raises(CheckpointError, match="has ids up to 1099, the model's vocab_size is 1024: 76 tokens"):
        prepare_tokenizers(checkpoint, bundle, 1024, 1024)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"vocab.txt": "a\nb\n"}, r"the vocabulary lacks '\[CLS\]'\n.*the vocabulary lacks '\[SEP\]'"),
        ({"vocab.txt": "[CLS]\n[SEP]\n", "tokenizer_config.json": "{"}, "tokenizer_config.json is not JSON"),
        ({"vocab.txt": "[CLS]\n[SEP]\n", "tokenizer_config.json": "[]"}, "tokenizer_config.json holds no object"),
        ({"vocab.txt": "[CLS]\n[SEP]\n", "tokenizer_config.json": '{"cls_token": 3}'}, "special tokens cannot be read"),
        ({"vocab.txt": "[CLS]\n[SEP]\n", "tokenizer_config.json": '{"do_basic_tokenize": false}'}, "not supported"),
        ({"vocab.txt": "[CLS]\n[SEP]\n", "added_tokens.json": '{"x": 9}'}, "'x' has id 9, but 2 is what follows"),
        ({"vocab.json": "{}", "merges.txt": "a\n"}, "are no byte-level vocabulary"),
        ({"vocab.json": '{"a": "b"}', "merges.txt": ""}, "tokenizer.json has no tokens"),
        (
            {"vocab.txt": "a\n", "tokenizer_config.json": '{"tokenizer_class": "MPNetTokenizer"}'},
            "is MPNetTokenizer",
        ),
        ({"tokenizer.model": ""}, "tokenizer.model: it holds no pieces"),
    ],
)
def test_files_that_cannot_be_converted_are_refused(
    checkpoint: Path, bundle: Path, files: dict[str, str], reason: str
) -> None:
    for name, content in files.items():
        (checkpoint / name).write_text(content)
    with pytest.raises(CheckpointError, match=f"(?s){reason}"):
        prepare_tokenizers(checkpoint, bundle, 99, 99)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ({}, "vocab.json is missing or empty"),
        ({"a": 0, "b": 2}, "2 tokens other ids"),
        ({"a": "0"}, "1 tokens other ids"),
    ],
)
def test_ids_of_marian_are_whole(
    train: Train, checkpoint: Path, bundle: Path, ids: dict[str, int], reason: str
) -> None:
    for name in ("source.spm", "target.spm"):
        shutil.copy(train(vocab_size=700), checkpoint / name)
    write_json(checkpoint, vocab=ids)
    with pytest.raises(CheckpointError, match=reason):
        prepare_tokenizers(checkpoint, bundle, 9, 9)
    write_json(checkpoint, vocab={"</s>": 0})
    with pytest.raises(CheckpointError, match="lacks '<unk>', the unknown token"):
        prepare_tokenizers(checkpoint, bundle, 9, 9)


def test_what_was_converted_reads_json_alone(train: Train, checkpoint: Path, bundle: Path) -> None:
    shutil.copy(train(vocab_size=700, pad_id=0, eos_id=1, unk_id=2, bos_id=-1), checkpoint / "spiece.model")
    prepare_tokenizers(checkpoint, bundle, 900, 900)
    content = json.loads((bundle / "tokenizer.json").read_text(encoding="utf-8"))
    assert (content["model"]["type"], content["truncation"], content["padding"]) == ("Unigram", None, None)
