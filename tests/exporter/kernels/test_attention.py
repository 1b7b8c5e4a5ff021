"""Our attention kernels, interpreted on the CPU, against PyTorch's attention under an explicit mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from edgeformer.runtime.plugins.kernels import CACHED, SOURCE, Variant  # noqa: E402

from .interpreter import Interpreter  # noqa: E402

ROUNDING = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}  # of outputs around 1, on inputs of this type


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    process = Interpreter()
    yield process
    process.close()


def cached(head_dim: int = 32, dtype: str = "float32", heads: int = 2, kv_heads: int = 2, window: int = 0) -> Variant:
    return Variant(CACHED, dtype, head_dim, heads, kv_heads, head_dim**-0.5, window)


def source(head_dim: int = 32, dtype: str = "float32", heads: int = 2, kv_heads: int = 2) -> Variant:
    return Variant(SOURCE, dtype, head_dim, heads, kv_heads, head_dim**-0.5)


def inputs_of(variant: Variant, q_len: int, lengths: list[int], capacity: int) -> dict[str, Any]:
    """Random tensors in the operator's order."""
    generator = torch.Generator().manual_seed(0)

    def heads(count: int, length: int) -> Any:
        shape = (len(lengths), count, length, variant.head_dim)
        return torch.randn(shape, generator=generator).to(getattr(torch, variant.dtype))

    query = heads(variant.num_heads, q_len)
    if variant.operator == SOURCE:
        keys = {name: heads(variant.num_kv_heads, capacity) for name in ("key", "value")}
        return {"query": query, **keys, "lengths": torch.tensor(lengths, dtype=torch.int32)}
    new = {name: heads(variant.num_kv_heads, q_len) for name in ("key", "value")}
    past = {name: heads(variant.num_kv_heads, capacity) for name in ("past_key", "past_value")}
    return {"query": query, **new, **past, "lengths": torch.tensor(lengths, dtype=torch.int32)}


def expected(variant: Variant, inputs: dict[str, Any], *, upper_left: bool = False) -> list[Any]:
    """The operator's outputs as its description says, in float64; a row that sees nothing gives zeros."""
    lengths, q_len = inputs["lengths"].long(), inputs["query"].shape[2]
    if variant.operator == SOURCE:
        keys, values = inputs["key"], inputs["value"]
        mask = (torch.arange(keys.shape[2]) < lengths[:, None])[:, None, None].expand(-1, 1, q_len, -1)
        caches = []
    else:
        keys, values = caches = [written(inputs[f"past_{part}"], inputs[part], lengths) for part in ("key", "value")]
        at = torch.arange(keys.shape[2])[None, None]
        query_at = (0 if upper_left else lengths[:, None]) + torch.arange(q_len)[None]
        mask = at <= query_at[:, :, None]
        if variant.window:
            mask &= at > query_at[:, :, None] - variant.window
        mask = mask[:, None]  # (batch, 1, q_len, capacity)
    keys, values = (tensor.repeat_interleave(variant.group, 1).double() for tensor in (keys, values))
    context = torch.nn.functional.scaled_dot_product_attention(
        inputs["query"].double(), keys, values, mask, scale=variant.scale
    )
    return [torch.where(mask.any(-1, keepdim=True), context, 0.0), *caches]


def written(cache: Any, new: Any, lengths: Any) -> Any:
    cache = cache.clone()
    for row, length in enumerate(lengths.tolist()):
        fits = max(min(new.shape[2], cache.shape[2] - length), 0)
        cache[row, :, length : length + fits] = new[row, :, :fits]
    return cache


def difference(interpreter: Interpreter, variant: Variant, inputs: dict[str, Any], **options: Any) -> float:
    """How far the context is from the reference; infinite where it is not finite or a cache differs at all."""
    wanted = expected(variant, inputs)
    got = interpreter.attend(variant, {name: tensor.clone() for name, tensor in inputs.items()}, **options)
    if not all(torch.equal(cache, other) for cache, other in zip(got[1:], wanted[1:], strict=True)):
        return float("inf")
    worst = float((got[0].double() - wanted[0]).abs().max())
    return worst if worst == worst else float("inf")


@pytest.mark.parametrize(
    ("head_dim", "q_len"), [(32, 1), (32, 9), (64, 1), (64, 5), (80, 1), (80, 9), (96, 1), (128, 1), (128, 9)]
)
def test_it_writes_the_cache_and_attends_to_it_as_pytorch_does(
    interpreter: Interpreter, head_dim: int, q_len: int
) -> None:
    variant = cached(head_dim, heads=2, kv_heads=1)
    assert difference(interpreter, variant, inputs_of(variant, q_len, [0, 41], 71)) < ROUNDING["float32"]


@pytest.mark.parametrize(("heads", "kv_heads", "q_len"), [(3, 1, 1), (6, 2, 1), (20, 1, 1), (3, 1, 6), (20, 1, 6)])
def test_heads_that_share_keys_read_their_own(interpreter: Interpreter, heads: int, kv_heads: int, q_len: int) -> None:
    variant = cached(heads=heads, kv_heads=kv_heads)
    assert difference(interpreter, variant, inputs_of(variant, q_len, [0, 29], 67)) < ROUNDING["float32"]


@pytest.mark.parametrize(("window", "q_len"), [(4, 1), (33, 1), (1, 18), (33, 18)])
def test_a_sliding_window_hides_what_lies_before_it(interpreter: Interpreter, window: int, q_len: int) -> None:
    variant = cached(heads=2, kv_heads=1, window=window)
    assert difference(interpreter, variant, inputs_of(variant, q_len, [3, 60], 79)) < ROUNDING["float32"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("q_len", [1, 70])
def test_half_precision_differs_by_its_rounding_alone(interpreter: Interpreter, dtype: str, q_len: int) -> None:
    variant = cached(64, dtype, kv_heads=1)
    assert difference(interpreter, variant, inputs_of(variant, q_len, [5, 40], 111)) < ROUNDING[dtype]


@pytest.mark.parametrize("q_len", [1, 21])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention_to_a_source_sees_each_rows_own_length(interpreter: Interpreter, q_len: int, dtype: str) -> None:
    variant = source(dtype=dtype, heads=2, kv_heads=1)
    assert difference(interpreter, variant, inputs_of(variant, q_len, [1, 37, 13], 37)) < ROUNDING[dtype]


@pytest.mark.parametrize("q_len", [1, 21])
def test_a_row_of_length_0_gives_zeros(interpreter: Interpreter, q_len: int) -> None:
    variant = source(kv_heads=1)
    context = interpreter.attend(variant, inputs_of(variant, q_len, [0, 9], 9))[0]
    assert not context[0].any()
    assert context[1].isfinite().all()


@pytest.mark.parametrize("lengths", [[70, 71], [72, 500], [-3, 2]])
def test_a_length_that_makes_no_sense_leaves_other_memory_alone(interpreter: Interpreter, lengths: list[int]) -> None:
    variant, capacity = cached(kv_heads=1), 71
    inputs = inputs_of(variant, 3, lengths, capacity)
    context, keys, values = interpreter.attend(variant, {name: tensor.clone() for name, tensor in inputs.items()})
    assert context.isfinite().all()
    for row, length in enumerate(lengths):
        kept = min(max(length, 0), capacity)
        assert torch.equal(keys[row, :, :kept], inputs["past_key"][row, :, :kept])
        assert torch.equal(values[row, :, :kept], inputs["past_value"][row, :, :kept])


def test_garbage_behind_a_rows_length_is_never_seen(interpreter: Interpreter) -> None:
    variant = cached(kv_heads=1)
    inputs = inputs_of(variant, 1, [2, 40], 71)
    context = interpreter.attend(variant, {name: tensor.clone() for name, tensor in inputs.items()})[0]
    for name in ("past_key", "past_value"):
        inputs[name][0, :, 2:] = float("nan")
        inputs[name][1, :, 40:] = 1e30
    assert torch.equal(interpreter.attend(variant, inputs)[0], context)


@pytest.mark.parametrize("q_len", [1, 20])
def test_a_batch_gives_each_row_exactly_what_it_gets_alone(interpreter: Interpreter, q_len: int) -> None:
    variant = cached(kv_heads=1)
    inputs = inputs_of(variant, q_len, [3, 50], 73)
    alone = [{name: tensor[row : row + 1].clone() for name, tensor in inputs.items()} for row in range(2)]
    together = interpreter.attend(variant, inputs)
    for row, tensors in enumerate(alone):
        for whole, part in zip(together, interpreter.attend(variant, tensors), strict=True):
            assert torch.equal(whole[row : row + 1], part)


def test_a_cache_that_is_not_written_in_place_is_copied(interpreter: Interpreter) -> None:
    variant = cached(kv_heads=1)
    inputs = inputs_of(variant, 4, [0, 30], 61)
    assert difference(interpreter, variant, inputs, in_place=False) < ROUNDING["float32"]


def test_upper_left_causality_would_be_found(interpreter: Interpreter) -> None:
    variant = cached(kv_heads=1)
    inputs = inputs_of(variant, 9, [0, 41], 71)
    wrong = expected(variant, inputs, upper_left=True)[0]
    got = interpreter.attend(variant, inputs)[0]
    assert (got - wrong)[0].abs().max() < ROUNDING["float32"]  # an empty cache: both are right
    assert (got - wrong)[1].abs().max() > 0.1


PLANTED = {
    "a query that does not see itself": ("at[None, :] <= token[:, None]", "at[None, :] < token[:, None]"),
    "a window one too long": ("past + token[:, None] - WINDOW", "past + token[:, None] - WINDOW - 1"),
    "every head the group's first": ("row_at = rows % GROUP * q_len", "row_at = 0 * rows * q_len"),
    "splits that are all weighted alike": ("tl.exp2(peak - tl.max(peak, 0))", "tl.exp2(peak * 0)"),
    "a write at the front": ("(start + at)[:, None]", "at[:, None]"),
    "another row's length": ("lengths_ptr + head // KV_HEADS", "lengths_ptr + 1 - head // KV_HEADS"),
}  # fmt: skip


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_is_found(interpreter: Interpreter, error: str) -> None:
    variant = cached(heads=2, kv_heads=1, window=21)
    inputs = inputs_of(variant, 3, [9, 41], 71)
    assert difference(interpreter, variant, inputs, edit=PLANTED[error]) > 1e-3
