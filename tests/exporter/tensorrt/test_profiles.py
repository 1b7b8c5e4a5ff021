"""Profiles are solved from a model's sizes and what was asked for; every contradiction is named at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.exporter.tensorrt.options import EngineOptions, parse_bytes, parse_limits
from edgeformer.exporter.tensorrt.profiles import CAPACITY, SOURCE_LEN, Solved, input_shapes, solve
from edgeformer.runtime.bundle import Kind
from edgeformer.runtime.errors import LimitsError, OptionError
from edgeformer.runtime.names import Sizes, cache_shape, encoded_shape, step_inputs


def sizes(max_positions: int = 100, num_heads: int = 8) -> Sizes:
    return Sizes(
        vocab_size=90, num_layers=2, num_heads=num_heads, num_kv_heads=num_heads, head_dim=64,
        max_positions=max_positions, source_vocab_size=90, max_source_positions=max_positions,
    )  # fmt: skip


def without_source(max_positions: int = 100) -> Sizes:
    return dataclasses.replace(sizes(max_positions), source_vocab_size=0, max_source_positions=0)


def translating(sizes: Sizes, **options: Any) -> Solved:
    return solve("encoder-decoder", sizes, EngineOptions(**options))


def problems(kind: Kind = "encoder-decoder", **options: Any) -> tuple[str, ...]:
    with pytest.raises(LimitsError) as caught:
        solve(kind, sizes() if kind == "encoder-decoder" else without_source(), EngineOptions(**options))
    return caught.value.problems


def test_the_step_graph_has_a_profile_for_prefill_and_one_for_decoding_and_the_encoder_has_one() -> None:
    solved = solve(
        "encoder-decoder", sizes(), EngineOptions(batch=(1, 2, 4), q_len=(1, 3, 20), source_len=(2, 5, 50), capacity=70)
    )
    both = {"batch": (1, 2, 4), "source_len": (2, 5, 50)}
    prefill, decode = solved.profiles["decoder"]
    assert solved.capacity == 70
    assert solved.profiles["encoder"] == (both,)
    assert prefill == {**both, "q_len": (1, 3, 20), "n": (1, 1, 20)}
    assert decode == {**both, "q_len": (1, 1, 1), "n": (1, 1, 1)}


def test_a_model_of_few_heads_decodes_with_up_to_two_queries() -> None:
    for heads, q_len in ((3, (1, 1, 2)), (4, (1, 1, 1))):
        assert translating(sizes(num_heads=heads)).profiles["decoder"][1]["q_len"] == q_len


def test_a_language_model_has_a_step_graph_that_reads_longer_prompts_and_no_source() -> None:
    solved = solve("decoder", without_source(9000), EngineOptions(capacity=700))
    assert solved.capacity == 700
    assert solved.profiles.keys() == {"decoder"}
    prefill, decode = solved.profiles["decoder"]
    assert prefill == {"batch": (1, 4, 32), "q_len": (1, 32, 256), "n": (1, 1, 32)}
    assert decode == {"batch": (1, 4, 32), "q_len": (1, 1, 1), "n": (1, 1, 1)}


def test_an_encoder_has_one_profile_and_no_capacity() -> None:
    solved = solve("encoder", without_source(300), EngineOptions(batch=(1, 2, 4)))
    assert solved.capacity == 0
    assert solved.profiles == {"encoder": ({"batch": (1, 2, 4), "source_len": (1, 37, 300), "n": (1, 1, 32)},)}


def test_what_a_kind_of_model_does_not_have_is_refused() -> None:
    assert problems("decoder", source_len=(1, 2, 3)) == (
        "--source-len is without meaning: a language model reads no source: its prompts count as --capacity",
    )
    assert problems("encoder", q_len=(1, 2, 3), capacity=7, source_len=(1, 2, 101)) == (
        "--q-len is without meaning: an encoder keeps no cache: --source-len is what it reads",
        "--capacity is without meaning: an encoder keeps no cache: --source-len is what it reads",
        "--source-len goes to 101, and the model reads 100 positions: choose at most 100",
    )


def test_a_source_has_the_encoders_positions() -> None:
    both = dataclasses.replace(sizes(), max_source_positions=40)
    solved = translating(both)
    assert solved.profiles["encoder"][0]["source_len"] == (1, 5, 40)
    assert solved.profiles["decoder"][0]["q_len"] == (1, 4, 32)


def test_engines_that_the_runtime_could_not_use_are_refused() -> None:
    assert problems(batch=(8, 8, 64), q_len=(2, 3, 20)) == (
        "--batch goes from 8, expected from 1: take 1:8:64",
        "--q-len goes from 2, expected from 1: take 1:3:20",
    )


@given(positions=st.integers(1, 200_000), capacity=st.none() | st.integers(1, 200_000))
def test_defaults_fit_every_model_and_never_take_a_long_context_whole(positions: int, capacity: int | None) -> None:
    if capacity is not None and capacity > positions:
        capacity = positions
    solved = translating(sizes(positions), capacity=capacity)
    assert solved.capacity == (capacity or min(positions, CAPACITY))
    for profile in (*solved.profiles["encoder"], *solved.profiles["decoder"]):
        assert all(1 <= least <= usual <= most for least, usual, most in profile.values())
        assert profile["source_len"][2] <= min(positions, SOURCE_LEN)
    assert solved.profiles["decoder"][0]["q_len"][2] <= solved.capacity


def test_every_problem_is_told_at_once() -> None:
    found = problems(batch=(4, 2, 8), q_len=(0, 1, 1), source_len=(1, 8, 101), capacity=101)
    assert len(found) == 4
    for part in (
        "--batch goes from 4 by 2 to 8",
        "--q-len goes from 0",
        "--source-len goes to 101",
        "--capacity is 101",
    ):
        assert any(problem.startswith(part) for problem in found), part
    assert all("100 positions" in problem for problem in found[2:])


def test_a_capacity_beyond_the_models_positions_is_refused_with_what_would_do() -> None:
    assert problems(capacity=101) == ("--capacity is 101, and the model has 100 positions: choose 1 to 100",)
    assert problems(capacity=0) == ("--capacity is 0, and the model has 100 positions: choose 1 to 100",)


def test_more_new_tokens_than_a_cache_holds_are_refused() -> None:
    (problem,) = problems(q_len=(1, 8, 21), capacity=20)
    assert problem == "--q-len goes to 21, and a cache holds 20 tokens: lower it, or raise --capacity"


def test_inputs_that_share_a_dimension_agree_on_it() -> None:
    solved, static = translating(sizes(), capacity=70), sizes()
    shape = tuple(70 if dim == "capacity" else dim for dim in cache_shape(static))
    inputs = {**step_inputs(static), "past": shape, "encoded": encoded_shape(static)}
    prefill, decode = input_shapes(inputs, solved.profiles["decoder"])
    assert prefill["past"] == ((1, 8, 70, 64), (8, 8, 70, 64), (64, 8, 70, 64))
    assert prefill["encoded"] == ((1, 8, 1, 64), (8, 8, 12, 64), (64, 8, 100, 64))
    assert [shapes["input_ids"] for shapes in (prefill, decode)] == [
        ((1, 1), (8, 4), (64, 32)),
        ((1, 1), (8, 1), (64, 1)),
    ]
    assert decode["logits_at"] == ((1, 1), (8, 1), (64, 1))


def test_a_dimension_that_no_profile_knows_is_named() -> None:
    with pytest.raises(LimitsError, match="dimension window of input image is in no profile"):
        input_shapes({"image": ("batch", "window")}, translating(sizes()).profiles["encoder"])


@pytest.mark.parametrize(
    ("text", "limits"),
    [("1:8:64", (1, 8, 64)), ("5", (1, 5, 5)), ("1", (1, 1, 1)), ("0", (1, 0, 0)), ("9:2:1", (9, 2, 1))],
)
def test_limits_are_three_numbers_or_one(text: str, limits: tuple[int, int, int]) -> None:
    assert parse_limits("--batch", text) == limits


@pytest.mark.parametrize("text", ["", "1:2", "1:2:3:4", "a", "1:-2:3", "1.5", "1: 2:3", "9999999999"])
def test_limits_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="--batch is .* expected LEAST:USUAL:MOST, such as 1:8:64"):
        parse_limits("--batch", text)


def test_bytes_have_units() -> None:
    assert [parse_bytes("--workspace", text) for text in ("7", "2k", "512M", "2G")] == [7, 2048, 512 << 20, 2 << 30]
    for wrong in ("", "0", "1T", "-1", "1.5G", "G"):
        with pytest.raises(OptionError, match="--workspace is .* expected a number of bytes"):
            parse_bytes("--workspace", wrong)


def test_the_options_that_were_given_are_known_as_the_command_line_spells_them() -> None:
    options = EngineOptions(batch=(1, 1, 1), compute_capabilities=("8.9",), strip_weights=True)
    assert options.given == ("--batch", "--compute-capability", "--strip-weights")
    assert EngineOptions().given == ()
