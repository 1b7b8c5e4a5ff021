"""A loaded encoder gives what Hugging Face's pipelines give, each input as alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

from edgeformer.runtime import EncoderModel, load, load_encoder, loading
from edgeformer.runtime.encoder_batches import like_lengths
from edgeformer.runtime.errors import BundleError, InputError, OptionError

TEXTS = [
    "The cat sat on the mat.",
    "a dog",
    "It was a big, red house in Paris and the man ate food!",
    "café",
    "the small dog ran and ran and ran",
]
MakeBundle = Callable[[str], Path]


@pytest.fixture(scope="module")
def encoder(encoder_bundle: MakeBundle) -> Callable[[str], EncoderModel]:
    loaded: dict[str, EncoderModel] = {}

    def get(kind: str) -> EncoderModel:
        if kind not in loaded:
            loaded[kind] = load_encoder(encoder_bundle(kind), threads=1)
        return loaded[kind]

    return get


@pytest.fixture(scope="module")
def pipeline(encoder_checkpoint: MakeBundle) -> Callable[[str, str], Any]:
    """Hugging Face's pipeline for a task on one of the checkpoints."""

    def get(task: str, kind: str) -> Any:
        folder = encoder_checkpoint(kind)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        classes = {"text-classification": "SequenceClassification", "token-classification": "TokenClassification",
                   "fill-mask": "MaskedLM"}  # fmt: skip
        model = getattr(transformers, f"AutoModelFor{classes[task]}").from_pretrained(folder)
        return transformers.pipeline(task, model=model, tokenizer=tokenizer)

    return get


@torch.inference_mode()
def hidden_states(checkpoint: Path, text: str) -> torch.Tensor:
    """Of Hugging Face's model for a text without padding: (tokens, d_model)."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    model = transformers.AutoModel.from_pretrained(checkpoint)
    states: torch.Tensor = model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
    return states


# Vectors


def test_embeddings_are_the_pooled_hidden_states(
    encoder: Callable[[str], EncoderModel], encoder_checkpoint: MakeBundle
) -> None:
    found = encoder("sentences").encode(TEXTS)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert found.shape == (len(TEXTS), 32)
    for text, vector in zip(TEXTS, found, strict=True):
        mean = hidden_states(encoder_checkpoint("sentences"), text).mean(0)
        np.testing.assert_allclose(vector, mean / mean.norm(), atol=1e-5)


def test_hidden_states_come_without_padding(
    encoder: Callable[[str], EncoderModel], encoder_checkpoint: MakeBundle
) -> None:
    for kind in ("states", "sentences"):
        found = encoder(kind).hidden_states(TEXTS)
        for text, states in zip(TEXTS, found, strict=True):
            np.testing.assert_allclose(states, hidden_states(encoder_checkpoint(kind), text), atol=2e-5)


def test_without_an_embedding_encode_gives_hidden_states(encoder: Callable[[str], EncoderModel]) -> None:
    model = encoder("states")
    for found, expected in zip(model.encode(TEXTS), model.hidden_states(TEXTS), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_an_input_gets_what_it_gets_alone(encoder: Callable[[str], EncoderModel], batch_size: int) -> None:
    model, done = encoder("sentences"), list[int]()
    found = model.encode(TEXTS, batch_size=batch_size, on_done=done.append)
    alone = np.concatenate([model.encode(text) for text in TEXTS])
    np.testing.assert_allclose(found, alone, atol=1e-6)
    assert sum(done) == len(TEXTS)
    assert max(done) <= batch_size


def test_threads_do_not_disturb_one_another(encoder: Callable[[str], EncoderModel]) -> None:
    model = encoder("sentences")
    expected = [model.encode(text) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(model.encode, TEXTS * 8))
    for number, vector in enumerate(found):
        np.testing.assert_array_equal(vector, expected[number % len(TEXTS)])


def test_ids_are_taken_as_they_are(encoder: Callable[[str], EncoderModel]) -> None:
    model = encoder("sentences")
    ids = [list(model.text.encode(text).ids) for text in TEXTS]
    np.testing.assert_array_equal(model.encode(ids), model.encode(TEXTS))
    np.testing.assert_array_equal(model.encode(ids[0]), model.encode(TEXTS[:1]))


def test_the_second_text_of_a_pair_is_of_another_type(
    encoder: Callable[[str], EncoderModel], pipeline: Callable[[str, str], Any]
) -> None:
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[3])]
    found = encoder("classes").classify(pairs)
    reference = pipeline("text-classification", "classes")
    for (first, second), one in zip(pairs, found, strict=True):
        expected = reference({"text": first, "text_pair": second}, top_k=None)
        assert [score.label for score in one.scores] == [score["label"] for score in expected]
        np.testing.assert_allclose([s.score for s in one.scores], [s["score"] for s in expected], atol=1e-5)
    assert encoder("classes").classify(pairs[0]) == encoder("classes").classify(pairs[:1])


# Classes


@pytest.mark.parametrize("kind", ["classes", "topics"])
def test_all_classes_come_best_first(
    encoder: Callable[[str], EncoderModel], pipeline: Callable[[str, str], Any], kind: str
) -> None:
    found = encoder(kind).classify(TEXTS)
    for one, expected in zip(found, pipeline("text-classification", kind)(TEXTS, top_k=None), strict=True):
        assert [score.label for score in one.scores] == [score["label"] for score in expected]
        np.testing.assert_allclose([s.score for s in one.scores], [s["score"] for s in expected], atol=1e-5)
        assert (one.label, one.score) == (one.scores[0].label, one.scores[0].score)


def test_one_class_is_right_or_several_are(encoder: Callable[[str], EncoderModel]) -> None:
    sums = {kind: sum(s.score for s in encoder(kind).classify(TEXTS[0])[0].scores) for kind in ("classes", "topics")}
    assert sums["classes"] == pytest.approx(1, abs=1e-6)
    assert abs(sums["topics"] - 1) > 1e-3


def test_tokens_know_their_place_and_class(
    encoder: Callable[[str], EncoderModel], pipeline: Callable[[str, str], Any]
) -> None:
    found = encoder("entities").label_tokens(TEXTS)
    reference = pipeline("token-classification", "entities")
    for text, tokens in zip(TEXTS, found, strict=True):
        expected = reference(text, ignore_labels=[])
        assert [(t.label, t.start, t.end) for t in tokens] == [(e["entity"], e["start"], e["end"]) for e in expected]
        assert [token.text for token in tokens] == [text[e["start"] : e["end"]] for e in expected]
        np.testing.assert_allclose([t.score for t in tokens], [e["score"] for e in expected], atol=1e-5)


def test_tokens_given_as_ids_are_labelled_as_well(encoder: Callable[[str], EncoderModel]) -> None:
    model = encoder("entities")
    ids = model.text.encode("the cat").ids
    (tokens,) = model.label_tokens([list(ids)])
    (of_text,) = model.label_tokens("the cat")
    assert [token.token_id for token in tokens] == list(ids)
    assert [(t.text, t.label) for t in tokens[1:-1]] == [(t.text, t.label) for t in of_text]
    assert all(token.start is None for token in tokens)


# Masks


@pytest.mark.parametrize(("kind", "mask"), [("masks", "[MASK]"), ("byte masks", "<mask>")])
def test_masks_are_filled_with_the_likeliest_tokens(
    encoder: Callable[[str], EncoderModel], pipeline: Callable[[str, str], Any], kind: str, mask: str
) -> None:
    texts = [f"the cat sat on the {mask} .", f"{mask} dog", f"the red {mask} and it was a big man"]
    found = encoder(kind).fill_mask(texts, 7)
    for text, (one,), expected in zip(texts, found, pipeline("fill-mask", kind)(texts, top_k=7), strict=True):
        assert [filling.token_id for filling in one.fillings] == [filling["token"] for filling in expected]
        np.testing.assert_allclose([f.score for f in one.fillings], [f["score"] for f in expected], atol=1e-5)
        for filling, other in zip(one.fillings, expected, strict=True):
            assert filling.token == other["token_str"].strip()
            assert filling.text == text.replace(mask, filling.token)


def test_masks_of_a_pair_are_filled(encoder: Callable[[str], EncoderModel]) -> None:
    model, pair = encoder("masks"), ("the [MASK]", "a cat")
    (of_pair,), (of_encoded,) = model.fill_mask(pair)[0], model.fill_mask(model.text.encode(pair))[0]
    assert of_pair == of_encoded
    assert (of_pair.position, of_pair.fillings[0].text) == (2, "")


def test_each_of_several_masks_is_filled(
    encoder: Callable[[str], EncoderModel], pipeline: Callable[[str, str], Any]
) -> None:
    text = "the [MASK] sat on the [MASK] ."
    found = encoder("masks").fill_mask([text, "a [MASK]"], 3)
    expected = pipeline("fill-mask", "masks")(text, top_k=3)
    assert [len(masks) for masks in found] == [2, 1]
    assert [mask.position for mask in found[0]] == [2, 6]
    for mask, others in zip(found[0], expected, strict=True):
        assert [filling.token_id for filling in mask.fillings] == [other["token"] for other in others]
    assert found[0][1].fillings[0].text == f"the [MASK] sat on the {found[0][1].fillings[0].token} ."


# What cannot be


def test_what_is_too_long_is_cut_where_that_is_wanted(encoder: Callable[[str], EncoderModel]) -> None:
    model, text = encoder("sentences"), "the cat " * 20
    with pytest.raises(InputError, match="is 42 tokens long, the model takes 24: shorten it, or let it be cut"):
        model.encode(text)
    ids = [2, *model.text.encode("the cat " * 11).ids[1:-1], 3]
    np.testing.assert_array_equal(model.encode(text, truncate=True), model.encode([ids]))
    with pytest.raises(InputError, match="takes 24"):
        model.encode([ids * 2])
    assert model.encode([ids * 2], truncate=True).shape == (1, 32)


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ([], "there are no inputs"),
        ([" "], "an input is empty"),
        ([[]], "has no tokens"),
        ([[5, 10**6]], "outside the vocabulary"),
        ([["the", 3]], "an input is a text, a tuple of two texts, or token ids"),
        ([("the", " ")], "an input is empty"),
        (["\ud800"], "is not text"),
    ],
    ids=repr,
)
def test_what_is_no_input_is_refused(encoder: Callable[[str], EncoderModel], inputs: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        encoder("states").encode(inputs)


def test_a_head_does_what_it_is_for(encoder: Callable[[str], EncoderModel]) -> None:
    with pytest.raises(OptionError, match="has a head for sequence-classes, not for masked-tokens: call classify"):
        encoder("classes").fill_mask("the [MASK]")
    with pytest.raises(OptionError, match="call fill_mask"):
        encoder("masks").classify("the")
    with pytest.raises(OptionError, match="call encode"):
        encoder("sentences").label_tokens("the")


def test_masks_need_a_mask_and_a_sensible_number(encoder: Callable[[str], EncoderModel]) -> None:
    model = encoder("masks")
    with pytest.raises(InputError, match=r"input 'the cat' has no mask: write \[MASK\] into it"):
        model.fill_mask("the cat")
    with pytest.raises(OptionError, match="top_k is 0"):
        model.fill_mask("the [MASK]", 0)
    with pytest.raises(OptionError, match="batch_size is 0"):
        model.encode(TEXTS, batch_size=0)


def test_each_loader_names_the_other(tiny_bundle: Path, encoder_bundle: MakeBundle) -> None:
    with pytest.raises(BundleError, match="it holds an encoder, which does not generate: use `load_encoder`"):
        load(encoder_bundle("states"))
    with pytest.raises(BundleError, match="it holds a model of kind encoder-decoder, which generates: use `load`"):
        load_encoder(tiny_bundle)


def test_a_bundle_for_the_other_loader_is_refused_before_its_files_are_read(
    tiny_bundle: Path, encoder_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*arguments: object, **more: object) -> None:
        raise AssertionError("its files were read")

    monkeypatch.setattr(loading, "open_bundle", opened)
    with pytest.raises(BundleError, match="use `load_encoder`"):
        load(encoder_bundle("states"))
    with pytest.raises(BundleError, match="use `load`"):
        load_encoder(tiny_bundle)


# Batches


def test_batches_hold_like_lengths() -> None:
    lengths = [3, 100, 90, 4, 84, 100, 1, 3]
    batches = list(like_lengths(lengths, 3))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert batches == [[1, 5, 2], [4], [3], [0, 7], [6]]
    assert [len(batch) for batch in like_lengths([4000] * 5, 64)] == [2, 2, 1]
