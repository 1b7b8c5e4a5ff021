"""Attention over a cache that it writes, and over a source, in Triton.

A row of a tile is one query of one head: row r is head `r % GROUP` of query `r // GROUP`, so that heads which share
keys and values (grouped heads) share their loads as well. What a row sees is what the cache held before, read from the
cache, and the new tokens up to its own, read from where they came; so no block waits for another one's write, and one
kernel does both. Softmax runs online (FlashAttention-2, arXiv 2307.08691), in float32 and powers of two; with SPLITS
above 1 the cache is divided among as many blocks (Flash-Decoding) and `merge_splits` adds up what they found.

A row that sees nothing gives zeros, never NaN. Lengths are held to 0 and `capacity`; writes behind it are dropped.
Everything is contiguous; `dims` of a head are padded to BLOCK_DIM, a power of two, under masks.
"""

# mypy: ignore-errors
# (Triton's language looks like Python and is not: its values have no types that Python knows.)
# ruff: noqa: N803 (constants of a compilation are written as such)

import triton
import triton.language as tl

UNSEEN = tl.constexpr(-1.0e30)  # finite, so that no row becomes infinity minus infinity
TO_POWERS_OF_TWO = tl.constexpr(1.4426950408889634)  # log2(e)


@triton.jit
def fold_tile(
    query, key_ptr, value_ptr, at, exists, visible, dims, peak, norm, total, SCALE: tl.constexpr, HEAD_DIM: tl.constexpr
):
    """Fold the keys and values at `at` (keys,) into the running softmax of (rows,) and its sum (rows, dims)."""
    offsets = at[:, None] * HEAD_DIM + dims[None, :]
    there = exists[:, None] & (dims < HEAD_DIM)[None, :]
    key = tl.load(key_ptr + offsets, mask=there, other=0.0)
    score = tl.dot(query, tl.trans(key), input_precision="ieee") * (SCALE * TO_POWERS_OF_TWO)
    new_peak = tl.maximum(peak, tl.max(tl.where(visible, score, UNSEEN), 1))
    weight = tl.where(visible, tl.exp2(score - new_peak[:, None]), 0.0)  # (rows, keys)
    decay = tl.exp2(peak - new_peak)
    value = tl.load(value_ptr + offsets, mask=there, other=0.0)
    total = total * decay[:, None] + tl.dot(weight.to(value.dtype), value, input_precision="ieee")
    return new_peak, norm * decay + tl.sum(weight, 1), total


@triton.jit
def copy_rows(from_ptr, to_ptr, start, at, exists, dims, HEAD_DIM: tl.constexpr):
    """Copy rows `at` (tokens,) of one head to `start` and after."""
    there = exists[:, None] & (dims < HEAD_DIM)[None, :]
    value = tl.load(from_ptr + at[:, None] * HEAD_DIM + dims[None, :], mask=there, other=0.0)
    tl.store(to_ptr + (start + at)[:, None] * HEAD_DIM + dims[None, :], value, mask=there)


@triton.jit
def attention(
    query_ptr, key_ptr, value_ptr, past_key_ptr, past_value_ptr, lengths_ptr,
    q_len, capacity,
    out_ptr, present_key_ptr, present_value_ptr, partial_ptr, stats_ptr,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    SCALE: tl.constexpr, WINDOW: tl.constexpr, CACHED: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_KEYS: tl.constexpr,
):  # fmt: skip
    """One tile of rows over one split of the cache; the last split takes the new tokens and writes them.

    Grid: (cdiv(q_len * GROUP, BLOCK_ROWS), batch * KV_HEADS, SPLITS). CACHED false: no new tokens, nothing is written.
    WINDOW 0: no sliding window; else a query sees that many positions, its own the last.
    """
    block, head, split = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    dims = tl.arange(0, BLOCK_DIM)
    rows = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    token = rows // GROUP
    past = tl.minimum(tl.maximum(tl.load(lengths_ptr + head // KV_HEADS), 0), capacity).to(tl.int32)

    heads_at = head * GROUP * q_len  # where this group's heads begin in (batch * num_heads * q_len,)
    row_at = rows % GROUP * q_len + token  # row r of (GROUP, q_len)
    row_there = (rows < q_len * GROUP)[:, None] & (dims < HEAD_DIM)[None, :]
    query_at = query_ptr + heads_at * HEAD_DIM + (row_at[:, None] * HEAD_DIM + dims[None, :])
    query = tl.load(query_at, mask=row_there, other=0.0)
    peak = tl.full((BLOCK_ROWS,), UNSEEN, tl.float32)
    norm = tl.zeros((BLOCK_ROWS,), tl.float32)
    total = tl.zeros((BLOCK_ROWS, BLOCK_DIM), tl.float32)

    begin = 0
    if WINDOW > 0:  # the first row's window is the earliest that anyone here sees
        begin = tl.maximum(past + (block * BLOCK_ROWS) // GROUP - (WINDOW - 1), 0) // BLOCK_KEYS * BLOCK_KEYS
    share = tl.cdiv(tl.cdiv(past - begin, SPLITS), BLOCK_KEYS) * BLOCK_KEYS
    first = begin + split * share
    end = tl.minimum(first + share, past)
    past_key_ptr += head * capacity * HEAD_DIM
    past_value_ptr += head * capacity * HEAD_DIM
    for start in range(first, end, BLOCK_KEYS):
        at = start + tl.arange(0, BLOCK_KEYS)
        visible = (at < end)[None, :]
        if WINDOW > 0:
            visible = visible & (at[None, :] > past + token[:, None] - WINDOW)
        peak, norm, total = fold_tile(
            query, past_key_ptr, past_value_ptr, at, at < end, visible, dims, peak, norm, total, SCALE, HEAD_DIM
        )

    if CACHED:  # noqa: SIM102 (this is decided when the kernel is compiled, the next when it runs)
        if split == SPLITS - 1:
            key_ptr += head * q_len * HEAD_DIM
            value_ptr += head * q_len * HEAD_DIM
            for start in range(0, tl.minimum(tl.cdiv((block + 1) * BLOCK_ROWS, GROUP), q_len), BLOCK_KEYS):
                at = start + tl.arange(0, BLOCK_KEYS)
                visible = (at[None, :] <= token[:, None]) & (at < q_len)[None, :]
                if WINDOW > 0:
                    visible = visible & (at[None, :] > token[:, None] - WINDOW)
                peak, norm, total = fold_tile(
                    query, key_ptr, value_ptr, at, at < q_len, visible, dims, peak, norm, total, SCALE, HEAD_DIM
                )
            at = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)  # as tokens: every one is in some block, and in one only
            fits = (at < q_len) & (past + at < capacity)
            present_at = head * capacity * HEAD_DIM
            copy_rows(key_ptr, present_key_ptr + present_at, past, at, fits, dims, HEAD_DIM)
            copy_rows(value_ptr, present_value_ptr + present_at, past, at, fits, dims, HEAD_DIM)

    if SPLITS == 1:
        total = total / tl.where(norm > 0.0, norm, 1.0)[:, None]
        out_at = out_ptr + heads_at * HEAD_DIM + (row_at[:, None] * HEAD_DIM + dims[None, :])
        tl.store(out_at, total.to(out_ptr.dtype.element_ty), mask=row_there)
    else:
        partial_at = row_at * SPLITS + split
        partial_ptr += heads_at * SPLITS * HEAD_DIM
        stats_ptr += heads_at * SPLITS * 2
        tl.store(partial_ptr + (partial_at[:, None] * HEAD_DIM + dims[None, :]), total, mask=row_there)
        tl.store(stats_ptr + partial_at * 2, peak, mask=rows < q_len * GROUP)
        tl.store(stats_ptr + (partial_at * 2 + 1), norm, mask=rows < q_len * GROUP)


@triton.jit
def merge_splits(
    partial_ptr, stats_ptr, out_ptr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, SPLITS: tl.constexpr
):
    """Add up what the splits of one row found. Grid: (batch * num_heads * q_len,)."""
    row = tl.program_id(0).to(tl.int64)
    splits, dims = tl.arange(0, SPLITS), tl.arange(0, BLOCK_DIM)
    at = row * SPLITS + splits
    peak, norm = tl.load(stats_ptr + at * 2), tl.load(stats_ptr + at * 2 + 1)
    weight = tl.exp2(peak - tl.max(peak, 0))  # (splits,)
    partial = tl.load(partial_ptr + at[:, None] * HEAD_DIM + dims[None, :], mask=(dims < HEAD_DIM)[None, :], other=0.0)
    norm = tl.sum(norm * weight, 0)
    total = tl.sum(partial * weight[:, None], 0) / tl.where(norm > 0.0, norm, 1.0)
    tl.store(out_ptr + row * HEAD_DIM + dims, total.to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM)
