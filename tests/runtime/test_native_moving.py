"""Rows of caches that go on from other rows, with the library and without."""

from __future__ import annotations

import numpy as np
import pytest

from edgeformer.runtime.native import moving


@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [1, 0, 3, 2], [0, 0, 0, 0], [3, 0, 1, 2], [1, 1, 3, 3]])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows_have_what_others_had(
    rows: list[int], in_c: bool, dtype: type[np.generic], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_c:
        monkeypatch.setattr(moving, "functions", lambda: None)
    elif moving.functions() is None:
        pytest.skip("the library is not there")
    store = np.random.default_rng(0).normal(size=(6, 5, 3, 9, 8)).astype(dtype)
    caches, before = store[:, :4], store.copy()
    moving.move_rows(caches, np.array(rows), 7)
    np.testing.assert_array_equal(caches[:, :, :, :7], before[:, rows][:, :, :, :7])
    np.testing.assert_array_equal(caches[:, :, :, 7:], before[:, :4, :, 7:])
    np.testing.assert_array_equal(store[:, 4], before[:, 4])


@pytest.mark.parametrize("rows", [[0, 4], [-1, 0]])
def test_rows_that_are_not_there_are_refused(rows: list[int]) -> None:
    if moving.functions() is None:
        pytest.skip("the library is not there")
    with pytest.raises(IndexError, match="of 2"):
        moving.move_rows(np.zeros((2, 2, 1, 4, 8), np.float32), np.array(rows), 4)
