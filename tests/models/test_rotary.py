"""Rotary positions turn pairs by the angles that transformers computes, whatever the method."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from edgeformer.models.configs.keys import Keys
from edgeformer.models.configs.rope import METHODS, Rope, plain_frequencies, read_rope
from edgeformer.models.rotary import rotate, rotation
from edgeformer.runtime.errors import ConfigError

HEAD_DIM, MAX_POSITIONS = 32, 4096
PARAMETERS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 1024},
    "longrope": {
        "original_max_position_embeddings": 1024,
        "short_factor": [1 + i / 8 for i in range(16)],
        "long_factor": [2 + i / 4 for i in range(16)],
    },
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512,
    },
}  # fmt: skip


def read(values: dict[str, Any]) -> Rope:
    keys = Keys(values)
    rope = read_rope(keys, HEAD_DIM, MAX_POSITIONS)
    keys.finish()
    return rope


def problems(values: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(values)
    return caught.value.problems


def reference(method: str, theta: float) -> Any:
    config = transformers.LlamaConfig(
        hidden_size=64, num_attention_heads=2, head_dim=HEAD_DIM, max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": method, "rope_theta": theta, **PARAMETERS[method]},
    )  # fmt: skip
    return LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("method", METHODS)
def test_frequencies_and_scale_are_those_of_transformers(method: str, theta: float) -> None:
    rope, wanted = read({"rope_parameters": {"rope_type": method, "rope_theta": theta, **PARAMETERS[method]}}), None
    wanted = reference(method, theta)
    torch.testing.assert_close(torch.tensor(rope.frequencies), wanted.inv_freq, rtol=2e-6, atol=0)
    assert rope.scale == pytest.approx(wanted.attention_scaling)


@pytest.mark.parametrize("method", METHODS)
def test_queries_turn_as_in_transformers(method: str) -> None:
    rope = read({"rope_parameters": {"rope_type": method, "rope_theta": 10000.0, **PARAMETERS[method]}})
    query, positions = torch.randn(2, 3, 4, HEAD_DIM), torch.tensor([[0, 1, 2, 3], [95, 96, 97, 98]])
    wanted, _ = apply_rotary_pos_emb(query, query, *reference(method, 10000.0)(query, positions))
    actual = rotate(query, rotation(rope, positions, query.dtype), rope)
    torch.testing.assert_close(actual, wanted, rtol=0, atol=5e-5)


@pytest.mark.parametrize("method", METHODS)
def test_old_configurations_say_the_same_in_other_places(method: str) -> None:
    new = {"rope_parameters": {"rope_type": method, "rope_theta": 500.0, **PARAMETERS[method]}}
    old = {"rope_theta": 500.0, "rope_scaling": {"rope_type": method, **PARAMETERS[method]}}
    older = {"rope_theta": 500.0, "rope_scaling": {"type": method, **PARAMETERS[method]}}
    assert read(new) == read(old) == read(older)


def test_no_scaling_is_the_plain_rotation() -> None:
    assert read({}).frequencies == read({"rope_scaling": None, "rope_theta": 10000}).frequencies
    assert read({"rope_theta": 500.0}).frequencies == plain_frequencies(HEAD_DIM, 500.0)


def test_what_depends_on_the_length_of_the_text_ends_where_it_would_change() -> None:
    longest = {
        method: read({"rope_parameters": {"rope_type": method, **PARAMETERS[method]}}).longest for method in METHODS
    }
    assert longest == {
        "default": None, "linear": None, "dynamic": MAX_POSITIONS, "yarn": None, "longrope": 1024, "llama3": None,
    }  # fmt: skip


def test_yarn_stretches_to_the_length_that_the_configuration_claims_where_it_names_no_factor() -> None:
    values = {"rope_type": "yarn", "original_max_position_embeddings": 1024}
    assert read({"rope_parameters": values}) == read({"rope_parameters": {**values, "factor": 4.0}})


def test_interleaved_pairs_are_neighbours() -> None:
    """A rotation of complex numbers, written with those of torch."""
    rope = read({"rotary_interleaved": True})
    x, positions = torch.randn(1, 2, 5, HEAD_DIM), torch.arange(7, 12)[None]
    angles = positions[0, :, None] * torch.tensor(rope.frequencies)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    actual = rotate(x, rotation(rope, positions, x.dtype), rope)
    torch.testing.assert_close(actual, torch.view_as_real(turned).flatten(-2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_does_not_round_positions(dtype: torch.dtype) -> None:
    positions = torch.tensor([[4001]])
    wanted = rotation(read({}), positions, torch.float32)
    actual = rotation(read({}), positions, dtype)
    assert all(a.dtype == dtype and torch.equal(a, w.to(dtype)) for a, w in zip(actual, wanted, strict=True))


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    (problem,) = problems({"rope_scaling": {"type": "su"}})
    assert problem == (
        "rotary positions: rope_type is 'su', expected one of default, linear, dynamic, yarn, longrope, llama3"
    )


def test_places_that_contradict_each_other_are_refused() -> None:
    found = problems(
        {
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
            "rope_scaling": {"type": "dynamic", "factor": 2.0},
            "rope_theta": 500.0,
        }
    )
    assert found == (
        "rotary positions: rope_type is 'linear', and in rope_scaling 'dynamic'",
        "rotary positions: rope_theta is 10000.0, and in config.json 500.0",
    )


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"rope_type": "linear"}, ["key 'factor' is missing"]),
        ({"rope_type": "linear", "factor": -1}, ["factor is -1"]),
        ({"rope_type": "llama3", "factor": 8.0}, ["'low_freq_factor' is missing", "'high_freq_factor' is missing"]),
        ({**PARAMETERS["llama3"], "rope_type": "llama3", "low_freq_factor": 5.0}, ["less than high_freq_factor"]),
        ({**PARAMETERS["longrope"], "rope_type": "longrope", "short_factor": [1.0]}, ["short_factor is [1.0]"]),
        ({**PARAMETERS["longrope"], "rope_type": "longrope", "long_factor": None}, ["long_factor is None"]),
        ({"rope_theta": 1.0}, ["rope_theta is 1, expected a number above 1"]),
        ({"rope_theta": math.inf}, ["rope_theta is inf"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor is 0.5, which is not supported"]),
        ({"mrope_section": [1, 2]}, ["key 'mrope_section' is not understood"]),
        ({"full_attention": {"rope_type": "default"}}, ["key 'full_attention' is not understood"]),
        ({"rope_type": "linear", "beta_fast": 2.0}, ["'factor' is missing", "'beta_fast' is not understood"]),
    ],
)
def test_every_problem_is_named(values: dict[str, Any], named: list[str]) -> None:
    found = problems({"rope_parameters": values})
    assert len(found) == len(named)
    assert all(part in problem for part, problem in zip(named, found, strict=True))


def test_what_is_no_table_is_refused() -> None:
    assert problems({"rope_scaling": "linear"}) == ("rope_scaling is 'linear', expected a table of names and values",)


def test_an_odd_head_is_refused() -> None:
    keys = Keys({})
    read_rope(keys, 5, 16)
    assert keys.problems == ["rotary positions: head_dim is 5, expected an even number: its numbers turn in pairs"]


@pytest.mark.parametrize("interleaved", [False, True])
def test_training_turns_as_the_operator_does_and_has_gradients(interleaved: bool) -> None:
    rope = Rope(plain_frequencies(8), interleaved=interleaved)
    x = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    turned = rotation(rope, torch.arange(5).expand(2, -1) + 3, x.dtype)
    trained = rotate(x, turned, rope)
    torch.testing.assert_close(trained, rotate(x.detach(), turned, rope), rtol=0, atol=1e-6)
    trained.square().sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, 2 * x.detach(), rtol=0, atol=1e-5)  # a rotation keeps lengths
