"""A trained encoder-decoder gives what its own PyTorch module gives, from the logits to the beams of a bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import MarianMTModel

from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.runtime import GenerationConfig, Model, load

from ..models.encoder_decoder_families import Case, in_every_way
from ..runtime.marian import generated
from .annalog import END, REQUIREMENT, START, convert, load_module, load_original, read_tokens

pytestmark = pytest.mark.downloads

# Aspirin, caffeine, ibuprofen, penicillin G, ethanol, chlorpromazine, bromazepam, and a salt.
MOLECULES = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "CC(C)Cc1ccc(cc1)[C@@H](C)C(=O)O",
    "CC1(C)S[C@@H]2[C@H](NC(=O)Cc3ccccc3)C(=O)N2[C@H]1C(=O)O",
    "CCO",
    "CN(C)CCCN1c2ccccc2Sc2ccc(Cl)cc21",
    "O=C1CN=C(c2ccccn2)c2cc(Br)ccc2N1",
    "C[N+](C)(C)CC(=O)[O-]",
)
NEW_TOKENS = 60


@pytest.fixture(scope="module")
def files(fetched: Callable[[str], Path]) -> Path:
    return fetched(REQUIREMENT)


@pytest.fixture(scope="module")
def checkpoint(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("annalog")
    convert(files, folder)
    return folder


@pytest.fixture(scope="module")
def original(files: Path) -> Any:
    return load_original(files)


@pytest.fixture(scope="module")
def bundle(checkpoint: Path) -> Model:
    export_checkpoint(checkpoint, checkpoint / "bundle")
    return load(checkpoint / "bundle")


@pytest.fixture(scope="module")
def sources(checkpoint: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    return [tokenizer.encode(molecule).ids for molecule in MOLECULES]


@torch.no_grad()
def logits(original: Any, source: list[int], target: list[int]) -> Tensor:
    output: Tensor = original(torch.tensor([source]), torch.tensor([target]))[0][0]
    return output


def test_the_ids_are_those_of_its_own_tokenizer(files: Path, sources: list[list[int]]) -> None:
    own, tokens = load_module(files, "vocabulary").SMILESTokenizer(), read_tokens(files)
    for molecule, ids in zip(MOLECULES, sources, strict=True):
        assert [tokens[i] for i in ids] == [START, *own.tokenize(molecule), END]


def test_the_logits_are_its_own(files: Path, checkpoint: Path, sources: list[list[int]]) -> None:
    """In double precision, since logits of 60 hold fewer than five decimals in single."""
    original, targets = load_original(files).double(), [source[:-1] for source in sources[::-1]]
    expected = [logits(original, *row) for row in zip(sources, targets, strict=True)]
    case = Case([torch.tensor(source) for source in sources], [torch.tensor(target) for target in targets], expected)
    in_every_way(load_checkpoint(checkpoint).double(), case)


def test_greedy_decoding_says_the_same(bundle: Model, original: Any, sources: list[list[int]]) -> None:
    found = bundle.generate(sources, GenerationConfig(max_new_tokens=NEW_TOKENS))
    start, end = sources[0][0], sources[0][-1]
    for source, generation in zip(sources, found, strict=True):
        said = [start]
        while len(said) <= NEW_TOKENS and said[-1] != end:
            said.append(int(logits(original, source, said)[-1].argmax()))
        assert [start, *generation.hypotheses[0].token_ids, end][: len(said)] == said


@pytest.mark.parametrize("num_beams", [2, 4])
def test_beams_are_those_of_a_search_in_transformers(
    bundle: Model, checkpoint: Path, sources: list[list[int]], num_beams: int
) -> None:
    """annalog's own search confuses the scores of its beams as soon as one has ended, so it is no reference."""
    marian = MarianMTModel.from_pretrained(checkpoint).eval()
    options: dict[str, Any] = {
        "num_beams": num_beams, "num_return_sequences": num_beams, "max_new_tokens": NEW_TOKENS,
    }  # fmt: skip
    for source, generation in zip(sources, bundle.generate(sources, GenerationConfig(**options)), strict=True):
        expected = generated(marian, source, **options)
        assert [hypothesis.token_ids for hypothesis in generation.hypotheses] == [ids for ids, _ in expected]
        scores = [score for _, score in expected]
        assert [hypothesis.score for hypothesis in generation.hypotheses] == pytest.approx(scores, abs=1e-4)


def test_scores_of_beams_are_its_own_log_probabilities(bundle: Model, original: Any, sources: list[list[int]]) -> None:
    options = GenerationConfig(num_beams=4, num_return_sequences=4, max_new_tokens=NEW_TOKENS)
    start, end = sources[0][0], sources[0][-1]
    for source, generation in zip(sources, bundle.generate(sources, options), strict=True):
        for hypothesis in generation.hypotheses:
            assert hypothesis.finish_reason == "stop"
            said = [*hypothesis.token_ids, end]
            given = logits(original, source, [start, *said[:-1]]).log_softmax(-1)
            mean = given[torch.arange(len(said)), said].mean().item()
            assert hypothesis.score == pytest.approx(mean, abs=1e-4)
