"""Rows move on the device, whatever continues whatever."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeformer.runtime.backends.tensorrt.driver import Device
from edgeformer.runtime.backends.tensorrt.stores import Block, RowStore, moves_in_place

from .fake_cuda import FakeCuda


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.data())
def test_moves_one_after_another_give_every_row_what_it_continues(present: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, present - 1), min_size=1, max_size=12))
    spare = max(present, len(rows))
    held: list[int | None] = [*range(present), *[None] * (spare + 1 - present)]
    moves = moves_in_place(rows, spare)
    for to, source in moves:
        assert held[source] is not None
        held[to] = held[source]
    assert held[: len(rows)] == rows
    circles = sum(to == spare for to, _ in moves)
    assert len(moves) == sum(to != source for to, source in enumerate(rows)) + circles
    assert circles <= len(rows) // 2


def test_rows_that_stay_are_not_copied() -> None:
    assert moves_in_place([0, 1, 2], 3) == []
    assert moves_in_place([0, 1, 3], 4) == [(2, 3)]
    assert sorted(moves_in_place([1, 0], 2)) == [(0, 1), (1, 2), (2, 0)]


@pytest.mark.parametrize(("length", "head_dim", "itemsize"), [(5, 3, 2), (8, 64, 2), (7, 16, 4), (1, 1, 4)])
def test_a_row_moves_in_all_tensors_at_once(length: int, head_dim: int, itemsize: int) -> None:
    cuda = FakeCuda()
    device = Device(cuda)
    with device.active():
        tensors, rows, heads = 4, 3, 2
        store = RowStore(device, tensors, (rows, heads, length, head_dim), itemsize)
        assert all(address % 256 == 0 for address in store.addresses())
        assert len(set(store.addresses())) == tensors
        size = rows * heads * length * head_dim * itemsize
        before = []
        for tensor, address in enumerate(store.addresses()):
            content = np.random.default_rng(tensor).integers(0, 256, size, np.uint8)
            ctypes.memmove(address, content.ctypes.data, size)
            before.append(content.reshape(rows, heads, length, head_dim * itemsize))
        store.take(moves_in_place([2, 0, 1], store.rows), store, length)
        device.synchronize()
        for address, content in zip(store.addresses(), before, strict=True):
            after = np.frombuffer(ctypes.string_at(address, size), np.uint8).reshape(content.shape)
            np.testing.assert_array_equal(after, content[[2, 0, 1]])
    del store


def test_a_block_is_one_copy_each_way() -> None:
    device = Device(FakeCuda())
    with device.active():
        block = Block(device, {"ids": (np.int64, 3), "lengths": (np.int64, 5)})
        block.view("ids", (3,))[...] = [1, 2, 3]
        block.view("lengths", (5,))[...] = 7
        block.upload()
        device.synchronize()
        assert ctypes.cast(block.address("ids"), ctypes.POINTER(ctypes.c_int64))[:3] == [1, 2, 3]
        assert ctypes.cast(block.address("lengths"), ctypes.POINTER(ctypes.c_int64))[:5] == [7] * 5
        block.view("lengths", (5,))[...] = 0
        block.download()
        assert block.view("lengths", (5,)).tolist() == [0] * 5  # queued, not done
        device.synchronize()
        assert block.view("lengths", (5,)).tolist() == [7] * 5
