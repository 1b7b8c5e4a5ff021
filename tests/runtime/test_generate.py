"""What `generate` promises: PyTorch's tokens, each row as if it were alone, scores that add up, options that count."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edgeformer.runtime import Generation, GenerationConfig, Model, load
from edgeformer.runtime.errors import InputError, OptionError

if TYPE_CHECKING:
    from edgeformer.models.transformer import Transformer

BUDGET = 5  # more tokens than some words take, fewer than others would
OTHER_OPTIONS = {
    "max_length", "min_length", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens",
    "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id", "eos_token_id", "renormalize_logits",
    "do_sample", "temperature", "top_k", "top_p", "min_p", "seed", "prompt_lookup_num_tokens",
    "stop_strings",
}  # fmt: skip
GREEDY = GenerationConfig(max_new_tokens=BUDGET)
BEAMS = GenerationConfig(max_new_tokens=BUDGET, num_beams=4)
N_BEST = dataclasses.replace(BEAMS, num_return_sequences=4)
both = pytest.mark.parametrize("config", [GREEDY, N_BEST], ids=["greedy", "beam 4"])


def ids(generations: list[Generation]) -> list[list[tuple[int, ...]]]:
    return [[hypothesis.token_ids for hypothesis in generation.hypotheses] for generation in generations]


def scores(generations: list[Generation]) -> list[float]:
    return [hypothesis.score for generation in generations for hypothesis in generation.hypotheses]


# PyTorch


def test_greedy_gives_what_pytorch_gives(exact: Model, pytorch: Transformer, sources: list[list[int]]) -> None:
    from edgeformer.exporter import reference

    found = exact.generate(sources, GREEDY)
    assert [list(generation.token_ids) for generation in found] == reference.greedy(pytorch, sources, BUDGET)
    reasons = Counter(generation.finish_reason for generation in found)
    assert min(reasons["stop"], reasons["length"]) >= 5, f"some should end and some should not, got {reasons}"


def test_beam_search_gives_what_pytorch_gives(exact: Model, pytorch: Transformer, sources: list[list[int]]) -> None:
    from edgeformer.exporter import reference

    some = sources[::4]
    expected = [reference.beam_search(pytorch, source, BUDGET, num_beams=4) for source in some]
    found = exact.generate(some, N_BEST)
    assert ids(found) == [[tuple(row) for row, _ in several] for several in expected]
    assert scores(found) == pytest.approx([score for several in expected for _, score in several], abs=1e-4)


def test_it_generates_up_to_the_last_position(exact: Model, pytorch: Transformer, sources: list[list[int]]) -> None:
    """Longer than the first cache, so that it grows; the end token cannot cut it short."""
    from edgeformer.exporter import reference

    positions = exact.sizes.max_positions
    config = GenerationConfig(min_new_tokens=positions - 1)
    for source in sources[:3]:
        (found,) = exact.generate([source], config)
        assert positions - 1 <= len(found.token_ids) <= positions
        log_probs = reference.log_probs(pytorch, source, found.token_ids[: positions - 1])[: positions - 1]
        scored = exact.score([source], [found.token_ids[: positions - 1]])[0].token_log_probs[: positions - 1]
        assert scored == pytest.approx(log_probs, abs=1e-4)


# Rows and batches


@both
def test_a_ragged_batch_gives_each_word_what_it_gets_alone(
    model: Model, sources: list[list[int]], config: GenerationConfig
) -> None:
    assert len(sources) == 64
    together = model.generate(sources, config)
    alone = [model.generate([source], config)[0] for source in sources]
    assert ids(together) == ids(alone)
    assert scores(together) == pytest.approx(scores(alone), abs=1e-4)
    assert [generation.finish_reason for generation in together] == [generation.finish_reason for generation in alone]


@both
@pytest.mark.parametrize("batch_size", [1, 2, 7, 63, 1000])
def test_the_batch_size_changes_nothing(
    fast: Model, sources: list[list[int]], config: GenerationConfig, batch_size: int
) -> None:
    expected, found = fast.generate(sources, config), fast.generate(sources, config, batch_size=batch_size)
    assert ids(found) == ids(expected)
    assert scores(found) == pytest.approx(scores(expected), abs=1e-4)


@both
def test_the_order_of_the_inputs_changes_nothing(model: Model, words: list[str], config: GenerationConfig) -> None:
    assert ids(model.generate(words[::-1], config)) == ids(model.generate(words, config))[::-1]


@both
def test_a_row_is_not_changed_by_the_same_row_beside_it(
    model: Model, sources: list[list[int]], config: GenerationConfig
) -> None:
    first, second = ids(model.generate(sources[:2], config))
    assert ids(model.generate([sources[0], sources[1], sources[0]], config)) == [first, second, first]


@both
def test_calls_before_it_change_nothing(
    tiny_bundle: Path, model: Model, sources: list[list[int]], config: GenerationConfig
) -> None:
    """Buffers are used again: those of longer rows by shorter ones, and of larger batches by smaller ones."""
    model.generate(sources, GenerationConfig(min_new_tokens=25))
    model.generate(sources[:9], N_BEST)
    model.score(sources[:9], sources[:9])
    fresh = load(tiny_bundle, model.artifact.name, threads=1)
    for batch in (sources[:3], sources[3:12], sources[5:6]):
        found, expected = model.generate(batch, config), fresh.generate(batch, config)
        assert ids(found) == ids(expected)
        assert scores(found) == pytest.approx(scores(expected), abs=1e-6)


@both
def test_the_number_of_threads_changes_nothing(
    tiny_bundle: Path, model: Model, words: list[str], config: GenerationConfig
) -> None:
    two = load(tiny_bundle, model.artifact.name, threads=2)
    found, expected = two.generate(words, config), model.generate(words, config)
    assert ids(found) == ids(expected)
    assert scores(found) == pytest.approx(scores(expected), abs=1e-4)


def test_progress_counts_every_input_once(fast: Model, words: list[str]) -> None:
    done: list[int] = []
    fast.generate(words[:10], GREEDY, batch_size=4, on_done=done.append)
    assert done == [4, 4, 2]


# Scores


@both
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_the_score_is_what_score_says_of_the_same_ids(
    model: Model, sources: list[list[int]], config: GenerationConfig, penalty: float
) -> None:
    some, config = sources[::8], dataclasses.replace(config, length_penalty=penalty)
    for source, generation in zip(some, model.generate(some, config), strict=True):
        for hypothesis in generation.hypotheses:
            (scored,) = model.score([source], [hypothesis.token_ids])
            counted = scored.token_log_probs[:BUDGET]  # at the limit, the end token was not generated
            assert len(counted) == len(hypothesis.token_ids) + (hypothesis.finish_reason == "stop")
            divisor = len(counted) ** penalty if config.num_beams > 1 else 1
            assert hypothesis.score == pytest.approx(sum(counted) / divisor, abs=1e-3)


def test_the_n_best_are_distinct_and_sorted_and_begin_with_the_best(model: Model, words: list[str]) -> None:
    for n_best, best in zip(model.generate(words, N_BEST), model.generate(words, BEAMS), strict=True):
        assert len(best.hypotheses) == 1
        assert n_best.hypotheses[0] == best.hypotheses[0]
        found = [hypothesis.token_ids for hypothesis in n_best.hypotheses]
        assert len(found) == len(set(found)) == 4
        by_score = [hypothesis.score for hypothesis in n_best.hypotheses]
        assert by_score == sorted(by_score, reverse=True)


def test_fewer_of_the_n_best_are_the_first_of_them(fast: Model, words: list[str]) -> None:
    all_four = ids(fast.generate(words, N_BEST))
    for count in (2, 3):
        some = fast.generate(words, dataclasses.replace(BEAMS, num_return_sequences=count))
        assert ids(some) == [several[:count] for several in all_four]


def test_a_search_of_more_beams_finds_no_less_likely_words(fast: Model, words: list[str]) -> None:
    """Not so for each word, but over all of them."""
    config = GenerationConfig(max_new_tokens=BUDGET, num_beams=2, length_penalty=0.0)
    likely = [sum(scores(fast.generate(words, dataclasses.replace(config, num_beams=beams)))) for beams in (1, 2, 8)]
    assert likely == sorted(likely)
    assert likely[0] < likely[-1]


def test_as_many_beams_as_the_vocabulary_allows(fast: Model, words: list[str]) -> None:
    most = fast.sizes.vocab_size - 1
    (found,) = fast.generate(words[:1], GenerationConfig(max_new_tokens=2, num_beams=most, num_return_sequences=most))
    assert len(set(ids([found])[0])) == most


# Results


def test_a_result_says_what_it_is(fast: Model, words: list[str]) -> None:
    for generation in fast.generate(words, BEAMS):
        best = generation.hypotheses[0]
        summary = (generation.text, generation.token_ids, generation.score, generation.finish_reason)
        assert summary == (best.text, best.token_ids, best.score, best.finish_reason)
        assert best.text == fast.text.decode(best.token_ids)
        assert fast.tokens.ends[0] not in best.token_ids
        assert (best.finish_reason == "length") == (len(best.token_ids) == BUDGET)
        timings = generation.timings
        assert 0 < timings.encode < timings.first_token <= timings.total
        assert 1 <= timings.steps <= BUDGET


def test_texts_and_their_ids_are_the_same_input(fast: Model, words: list[str], sources: list[list[int]]) -> None:
    expected = ids(fast.generate(words[:4], GREEDY))
    rows = sources[:4]
    assert ids(fast.generate(rows, GREEDY)) == expected
    assert ids(fast.generate([words[0], *rows[1:]], GREEDY)) == expected
    assert ids(fast.generate([np.array(row) for row in rows], GREEDY)) == expected
    assert ids(fast.generate(tuple(map(tuple, rows)), GREEDY)) == expected
    assert ids(fast.generate(np.array([rows[0], rows[0]]), GREEDY)) == [expected[0]] * 2  # type: ignore[arg-type]


def test_a_single_input_counts_as_a_list_of_one(fast: Model, words: list[str], sources: list[list[int]]) -> None:
    expected = ids(fast.generate(words[:1], GREEDY))
    assert ids(fast.generate(words[0], GREEDY)) == expected
    assert ids(fast.generate(sources[0], GREEDY)) == expected
    assert ids(fast.generate(np.array(sources[0]), GREEDY)) == expected


# Options. What their values mean is in test_hugging_face.py


@pytest.mark.parametrize(
    ("base", "changed"),
    [
        ({}, {"max_new_tokens": 3}),
        ({}, {"min_new_tokens": 4}),
        ({}, {"num_beams": 4}),
        ({"num_beams": 4}, {"num_beams": 2}),
        ({"num_beams": 4}, {"num_return_sequences": 2}),
        ({"num_beams": 4}, {"length_penalty": -2.0}),
        ({"num_beams": 4}, {"length_penalty": 2.0}),
        ({"num_beams": 4}, {"min_new_tokens": 4}),
        ({"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": None}, {"early_stopping": True}),
        ({"num_beams": 4, "length_penalty": 2.0, "max_new_tokens": None}, {"early_stopping": "never"}),
    ],
    ids=str,
)
def test_every_option_changes_the_output(
    fast: Model, words: list[str], base: dict[str, Any], changed: dict[str, Any]
) -> None:
    base = {"max_new_tokens": BUDGET, **base}
    without, with_it = (fast.generate(words, GenerationConfig(**{**base, **more})) for more in ({}, changed))
    assert ids(without) != ids(with_it)


def test_there_is_no_other_option() -> None:
    """Whoever adds one adds it to the tests as well: above, or with those in test_constraints.py and test_sampling.py.

    What it means is checked in test_hugging_face.py.
    """
    assert {field.name for field in dataclasses.fields(GenerationConfig)} == {
        "max_new_tokens", "min_new_tokens", "num_beams", "num_return_sequences", "length_penalty", "early_stopping",
        *OTHER_OPTIONS,
    }  # fmt: skip


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("least", [1, 3, BUDGET - 1])
def test_no_row_ends_before_min_new_tokens(fast: Model, words: list[str], least: int, num_beams: int) -> None:
    config = GenerationConfig(
        max_new_tokens=BUDGET, min_new_tokens=least, num_beams=num_beams, num_return_sequences=num_beams
    )
    lengths = Counter(len(row) for several in ids(fast.generate(words, config)) for row in several)
    assert min(lengths) == least
    assert max(lengths) == BUDGET


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_new_tokens": 33}, "max_new_tokens is 33, the model has 32 positions"),
        ({"num_beams": 69}, "num_beams is 69, the vocabulary has 69 tokens"),
        ({"min_new_tokens": 33}, "min_new_tokens"),
    ],
    ids=str,
)
def test_what_the_model_cannot_meet_is_refused(fast: Model, options: dict[str, int], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        fast.generate(["word"], GenerationConfig(**options))


def test_options_are_a_generation_config(fast: Model) -> None:
    options: Any = {"max_new_tokens": 3}
    with pytest.raises(OptionError, match="options are {'max_new_tokens': 3}, expected a GenerationConfig"):
        fast.generate(["word"], options)


def test_where_every_token_ends_a_text_greedy_search_has_none_and_beams_are_refused(fast: Model) -> None:
    every = range(fast.sizes.vocab_size)
    (found,) = fast.generate(["word"], GenerationConfig(eos_token_id=every))
    assert (found.token_ids, found.finish_reason) == ((), "stop")
    with pytest.raises(OptionError, match="num_beams is 2, the vocabulary has 69 tokens, of which 0 do not end a text"):
        fast.generate(["word"], GenerationConfig(eos_token_id=every, num_beams=2))


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_size_below_one_is_refused(fast: Model, batch_size: int) -> None:
    with pytest.raises(OptionError, match=f"batch_size is {batch_size}, expected at least 1"):
        fast.generate(["word"], batch_size=batch_size)


# Inputs


def refused(model: Model, inputs: Any, config: GenerationConfig = GREEDY) -> str:
    with pytest.raises(InputError) as caught:
        model.generate(inputs, config)
    return str(caught.value)


def test_a_batch_of_none_is_refused(fast: Model) -> None:
    assert refused(fast, []) == "there are no inputs: give at least one"
    assert refused(fast, ()) == "there are no inputs: give at least one"
    assert refused(fast, np.zeros((0, 4), np.int64)) == "there are no inputs: give at least one"


@pytest.mark.parametrize("inputs", [None, 5, {"word"}, {"input_ids": [[5, 2]]}, b"word", iter(["word"])], ids=repr)
def test_what_is_no_list_is_refused(fast: Model, inputs: Any) -> None:
    assert "expected a list of texts or of rows of token ids" in refused(fast, inputs)


def test_bytes_are_no_token_ids(fast: Model) -> None:
    assert refused(fast, [b"\x05\x02"]) == "token ids are whole numbers; got b'\\x05\\x02'"


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_word_is_refused(fast: Model, text: str) -> None:
    assert "an input is empty" in refused(fast, ["word", text])
    assert "an input is empty" in refused(fast, text)


def test_a_row_without_ids_is_refused(fast: Model) -> None:
    assert refused(fast, [[5, 2], []]) == "an input has no tokens: give at least one"


def test_a_word_that_just_fits_is_taken_and_one_letter_more_is_refused(fast: Model) -> None:
    assert fast.generate(["a" * 31], GREEDY)
    message = refused(fast, ["a" * 32])
    assert "is 33 tokens long, the model has 32 positions" in message
    assert "a" * 32 in message
    assert len(refused(fast, ["a" * 10_000])) < 200
    assert fast.generate([[3] * 32], GREEDY)
    assert refused(fast, [[3] * 33]) == "an input has 33 tokens, the model has 32 positions"


def test_unknown_characters_are_named_with_their_places_and_what_is_known(fast: Model) -> None:
    message = refused(fast, ["fine", "na\u00efve 2"])
    for part in ("'\u00ef' at 2", "' ' at 5", "'2' at 6", "known: ' a b c"):
        assert part in message
    assert "'n'" not in message


def test_a_special_token_spelled_out_is_that_token(fast: Model) -> None:
    """A tokenizer takes `</s>` for the token of that name, not for a `<`, which would be unknown."""
    (found,) = fast.generate(["ab</s>"], GREEDY)
    assert found.token_ids == fast.generate([[4, 5, 2, 2]], GREEDY)[0].token_ids


@pytest.mark.parametrize("token", [-1, 69, 2**40])
def test_ids_outside_the_vocabulary_are_refused(fast: Model, token: int) -> None:
    assert refused(fast, [[3, token]]) == f"token ids [{token}] are outside the vocabulary of 69"


@pytest.mark.parametrize("row", [[5.9, 2.0], ["5", "2"], [None, 2], np.array([5.9, 2.0])], ids=repr)
def test_ids_that_are_not_whole_numbers_are_refused(fast: Model, row: Any) -> None:
    assert "token ids are whole numbers; got " in refused(fast, [row])


def test_an_input_is_refused_before_anything_is_computed(fast: Model) -> None:
    done: list[int] = []
    with pytest.raises(InputError):
        fast.generate(["word", "word 2"], GREEDY, batch_size=1, on_done=done.append)
    assert done == []


def test_padding_and_end_tokens_inside_a_source_are_tokens_like_others(
    exact: Model, pytorch: Transformer, loaded: Callable[[str], Model]
) -> None:
    """No sequence is read from a mask of ids: pad and end may stand anywhere."""
    from edgeformer.exporter import reference

    rows = [[0], [2], [5, 0, 6, 2], [5, 2, 6, 2, 0, 0, 0], [1, 1, 1]]
    found = exact.generate(rows, GREEDY)
    assert [list(generation.token_ids) for generation in found] == reference.greedy(pytorch, rows, BUDGET)
