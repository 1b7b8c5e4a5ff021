from __future__ import annotations

import numpy as np
import pytest
from gguf_weights import gguf_name, gguf_tensors, neighbours
from random_checkpoints import DECODERS, llama_weights


def turn(vector: np.ndarray, angles: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Rotary positions of one head, each angle turning a pair of numbers."""
    turned = vector.copy()
    for (a, b), angle in zip(pairs, angles, strict=True):
        turned[a] = vector[a] * np.cos(angle) - vector[b] * np.sin(angle)
        turned[b] = vector[b] * np.cos(angle) + vector[a] * np.sin(angle)
    return turned


def test_neighbours_that_are_turned_give_the_scores_of_halves() -> None:
    rng, head_dim = np.random.default_rng(0), 8
    query, key = (rng.standard_normal((head_dim, 16)).astype(np.float32) for _ in range(2))
    x, y, angles = rng.standard_normal(16), rng.standard_normal(16), rng.standard_normal(4)
    halves = [(i, i + 4) for i in range(4)]
    beside = [(2 * i, 2 * i + 1) for i in range(4)]
    expected = turn(query @ x, angles, halves) @ turn(key @ y, 2 * angles, halves)
    found = turn(neighbours(query, 1) @ x, angles, beside) @ turn(neighbours(key, 1) @ y, 2 * angles, beside)
    assert found == pytest.approx(expected)


def test_every_tensor_gets_its_name_and_only_queries_and_keys_change() -> None:
    shape = DECODERS["tiny"]
    weights = llama_weights(shape)
    config = {"num_attention_heads": shape.num_heads, "num_key_value_heads": shape.num_kv_heads}
    found = gguf_tensors(config, weights)
    assert len(found) == len(weights) == 2 + 9 * shape.num_layers
    changed = [name for name in weights if not np.array_equal(weights[name], found[gguf_name(name)])]
    assert sorted(changed) == sorted(
        f"model.layers.{i}.self_attn.{part}_proj.weight" for i in range(shape.num_layers) for part in "qk"
    )


def test_heads_do_not_mix() -> None:
    weight = np.arange(16, dtype=np.float32)[:, None]  # two heads of 8 rows
    assert neighbours(weight, 2)[:, 0].tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]


def test_an_unknown_tensor_is_named() -> None:
    with pytest.raises(KeyError, match="lm_tail"):
        gguf_name("lm_tail.a.b.c")
