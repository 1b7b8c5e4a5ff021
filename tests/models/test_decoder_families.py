"""Every decoder family gives what Hugging Face's transformers gives, in every variation of its configuration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from edgeformer.exporter.reference import beam_search
from edgeformer.models.checkpoint import load_checkpoint

from .decoder_families import TOKENS, VARIATIONS, empty_caches, greedy, random_rows, save, stepwise

LENGTHS = (11, 5, 1)
END = TOKENS["eos_token_id"]
ONE_OF_EACH = ("gpt2", "llama", "mistral window", "qwen2 window", "qwen3")


@pytest.fixture(scope="module", params=VARIATIONS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A model of transformers, and ours from its checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoint")
    return save(request.param, folder), load_checkpoint(folder)


def expected(reference: Any) -> list[Tensor]:
    """Logits of each row alone."""
    return [reference(row[None]).logits[0] for row in random_rows(LENGTHS)]


def assert_close(actual: list[Tensor], wanted: list[Tensor]) -> None:
    for a, w in zip(actual, wanted, strict=True):
        torch.testing.assert_close(a, w, rtol=0, atol=2e-5)


def test_without_a_cache_it_equals_transformers(pair: tuple[Any, Any]) -> None:
    reference, model = pair
    assert_close([model(row[None])[0] for row in random_rows(LENGTHS)], expected(reference))


def test_with_a_cache_in_uneven_steps_it_equals_transformers(pair: tuple[Any, Any]) -> None:
    reference, model = pair
    (row, *_), (wanted, *_) = random_rows(LENGTHS), expected(reference)
    assert_close(stepwise(model, [row], [[3], [2], [1], [4], [1]], capacity=11), [wanted])


def test_a_ragged_batch_equals_each_row_alone(pair: tuple[Any, Any]) -> None:
    reference, model = pair
    steps = [[4, 5, 1], [1, 0, 0], [6, 0, 0]]
    assert_close(stepwise(model, random_rows(LENGTHS), steps, capacity=16), expected(reference))


def test_padding_to_other_lengths_changes_nothing(pair: tuple[Any, Any]) -> None:
    reference, model = pair
    rows, capacity = random_rows([*LENGTHS, 23]), model.config.max_positions
    padded = stepwise(model, rows, [[*LENGTHS, 23]], capacity)[: len(LENGTHS)]
    assert_close(padded, expected(reference))


def test_only_wanted_positions_give_logits(pair: tuple[Any, Any]) -> None:
    reference, model = pair
    (row,) = random_rows([7])
    logits, _ = model.step(row[None], torch.tensor([0]), torch.tensor([[6, 2]]), empty_caches(model.config, 1, 8))
    torch.testing.assert_close(logits[0], reference(row[None]).logits[0, [6, 2]], rtol=0, atol=2e-5)


def test_padding_may_stand_past_the_last_position(pair: tuple[Any, Any]) -> None:
    """Beside a row that fills the model's positions, whose last step is padded beyond them."""
    reference, model = pair
    longest = model.config.max_positions
    rows = random_rows([longest, 3])
    wanted = [reference(row[None]).logits[0] for row in rows]
    assert_close(stepwise(model, rows, [[longest - 1, 0], [1, 3]], capacity=longest + 2), wanted)


def generated(reference: Any, prompt: Tensor, **options: Any) -> list[int]:
    """What transformers adds to a prompt."""
    ids = reference.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None], do_sample=False, **options)
    return ids[0, len(prompt) :].tolist()


def most_new_tokens(model: Any, prompt: Tensor) -> int:
    return min(32, model.config.max_positions - len(prompt))


@pytest.mark.parametrize("pair", ONE_OF_EACH, indirect=True)
def test_greedy_decoding_equals_transformers_over_32_tokens(pair: tuple[Any, Any]) -> None:
    reference, model = pair
    (prompt,) = random_rows([5])
    count = most_new_tokens(model, prompt)
    wanted = generated(reference, prompt, max_new_tokens=count, min_new_tokens=count, bad_words_ids=[[END]])
    assert greedy(model, prompt, count, never=END) == wanted


@pytest.mark.parametrize("pair", ONE_OF_EACH, indirect=True)
def test_beam_search_equals_transformers_over_32_tokens(pair: tuple[Any, Any]) -> None:
    """Through the reference that exported models are compared with."""
    reference, model = pair
    (prompt,) = random_rows([5])
    count = most_new_tokens(model, prompt)
    wanted = generated(reference, prompt, max_new_tokens=count, num_beams=4)
    (ids, _), *_ = beam_search(model, prompt.tolist(), count, num_beams=4)
    assert ids == wanted[: wanted.index(END) if END in wanted else None]
