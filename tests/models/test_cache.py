"""New keys and values stand behind each row's length, and nothing else moves."""

from __future__ import annotations

import pytest
import torch

from edgeformer.models.cache import write_cache

BATCH, HEADS, CAPACITY, HEAD_DIM, Q_LEN = 3, 2, 7, 4, 2


def arguments() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    cache = torch.arange(BATCH * HEADS * CAPACITY * HEAD_DIM, dtype=torch.float32)
    update = -1 - torch.arange(BATCH * HEADS * Q_LEN * HEAD_DIM, dtype=torch.float32)
    return (
        cache.view(BATCH, HEADS, CAPACITY, HEAD_DIM),
        update.view(BATCH, HEADS, Q_LEN, HEAD_DIM),
        torch.tensor([0, 3, CAPACITY - Q_LEN]),
    )


def test_each_row_is_written_behind_its_own_length_and_nowhere_else() -> None:
    cache, update, lengths = arguments()
    written = write_cache(cache, update, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(written[row, :, :length], cache[row, :, :length])
        assert torch.equal(written[row, :, length : length + Q_LEN], update[row])
        assert torch.equal(written[row, :, length + Q_LEN :], cache[row, :, length + Q_LEN :])


def test_the_given_cache_stays_as_it_was() -> None:
    cache, update, lengths = arguments()
    before = cache.clone()
    write_cache(cache, update, lengths)
    assert torch.equal(cache, before)


def test_a_write_past_the_capacity_is_refused() -> None:
    cache, update, _ = arguments()
    with pytest.raises(IndexError, match="out of bounds"):
        write_cache(cache, update, torch.tensor([0, 0, CAPACITY - Q_LEN + 1]))


def test_the_operator_is_what_torch_export_believes_it_to_be() -> None:
    torch.library.opcheck(write_cache, arguments(), test_utils=("test_schema", "test_faketensor"))
