"""A trained LLaMA gives what its own NumPy forward pass gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeformer.exporter.exporting import export_checkpoint
from edgeformer.models.checkpoint import load_checkpoint
from edgeformer.runtime import GenerationConfig, load

from ..models.decoder_families import greedy, stepwise
from .glassllm import LANGUAGES, REQUIREMENT, convert, importable

pytestmark = pytest.mark.downloads

PROMPTS = {"en": "It was the best of times, ", "pt": "No meio do caminho "}


@pytest.fixture(scope="module", params=LANGUAGES)
def pair(
    request: pytest.FixtureRequest, fetched: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any, list[int]]:
    """The package's model, ours, and the ids of a text."""
    folder = tmp_path_factory.mktemp(request.param)
    reference, tokenizer = both(fetched(REQUIREMENT), request.param, folder)
    return reference, load_checkpoint(folder), tokenizer.encode(PROMPTS[request.param] * 20)


def both(files: Path, language: str, folder: Path) -> tuple[Any, Any]:
    """The package's model and tokenizer; the same as a checkpoint in the folder."""
    convert(files, language, folder)
    with importable(files) as package:
        reference, tokenizer = package.load_pretrained(language)
    return reference, tokenizer


def logits(reference: Any, ids: list[int]) -> torch.Tensor:
    return torch.from_numpy(reference.forward(np.array(ids)).data[0]).float()  # it computes in double precision


def test_the_logits_are_those_of_the_numpy_forward_pass(pair: tuple[Any, Any, list[int]]) -> None:
    reference, model, ids = pair
    ids = ids[: model.config.max_positions]
    assert len(ids) == 128
    torch.testing.assert_close(model(torch.tensor([ids]))[0], logits(reference, ids), rtol=0, atol=2e-5)


def test_so_are_those_of_a_ragged_batch_through_a_cache(pair: tuple[Any, Any, list[int]]) -> None:
    reference, model, ids = pair
    rows = [torch.tensor(ids[:100]), torch.tensor(ids[7:30]), torch.tensor(ids[3:4])]
    out = stepwise(model, rows, [[40, 20, 1], [1, 3, 0], [59, 0, 0]], capacity=128)
    for row, given in zip(rows, out, strict=True):
        torch.testing.assert_close(given, logits(reference, row.tolist()), rtol=0, atol=2e-5)


def test_greedy_decoding_says_the_same(pair: tuple[Any, Any, list[int]]) -> None:
    reference, model, ids = pair
    wanted = [step.token for step in reference.generate(ids[:10], 100, greedy=True)]
    assert greedy(model, torch.tensor(ids[:10]), 100) == wanted


def test_exported_it_says_the_same_text(fetched: Callable[[str], Path], tmp_path: Path) -> None:
    """From text to text, without torch: tokenizer, ONNX Runtime, greedy search."""
    reference, tokenizer = both(fetched(REQUIREMENT), "en", tmp_path)
    export_checkpoint(tmp_path, tmp_path / "bundle")
    model = load(tmp_path / "bundle")
    for prompt in (PROMPTS["en"], "The whale\nswam  to", "a"):
        ids = tokenizer.encode(prompt)
        wanted = [step.token for step in reference.generate(ids, 60, greedy=True)]
        (found,) = model.generate(prompt, GenerationConfig(max_new_tokens=60))
        assert list(found.token_ids) == wanted
        assert found.text == tokenizer.decode(wanted)
