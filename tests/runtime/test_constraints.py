"""Constraints mean what they mean in Hugging Face's transformers: each by its logits processor, and all of them in
searches whose tokens are those of `generate`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgeformer.runtime import GenerationConfig
from edgeformer.runtime.decoding import Decoding
from edgeformer.runtime.errors import OptionError
from edgeformer.runtime.processors import processors_of
from edgeformer.runtime.prompts import History, Limits, Prompt
from edgeformer.runtime.results import Hypothesis

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from .reference_rows import ReferenceRows  # needs transformers  # noqa: E402

VOCAB, START, PAD = 23, 1, 0
ENDS = (5, 6)  # of the encoder-decoder and of the language model: tokens that they take now and then
MOST = 12
POSITIONS = 64
PROMPTS = [[3, 4, 5, 3, 4], [7], [9, 9, 9, 9, 9, 9, 9], [6, 5], [5, 8, 11, 5, 8, 11, 5]]

# What is asked for, beside max_new_tokens.
OPTIONS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.6},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"bad_words_ids": [[9], [6], [5]]},
    {"bad_words_ids": [[9, 9], [6, 6], [3, 4, 7], [12], [1, 2, 3, 4, 5, 6, 7, 8, 9]]},
    {"bad_words_ids": [[token] for token in range(3, 14)]},
    {"suppress_tokens": [3, 9, 10, 11, 12, 13]},
    {"suppress_tokens": [5, 6]},
    {"begin_suppress_tokens": [7, 8, 9, 18, 21]},
    {"begin_suppress_tokens": [5, 6, 18, 20, 21], "forced_bos_token_id": 4},
    {"forced_bos_token_id": 14},
    {"forced_eos_token_id": 6},
    {"forced_eos_token_id": 6, "min_new_tokens": 12},
    {"min_new_tokens": 9},
    {"min_length": 9},
    {"max_length": 9},
    {"max_length": 14, "min_length": 11},
    {"eos_token_id": [6, 9, 18]},
    {"eos_token_id": [6, 9, 18, 21], "min_new_tokens": 5},
    {"eos_token_id": 9},
    {"renormalize_logits": True, "suppress_tokens": [3, 9, 10, 11, 12, 13]},
    {
        "repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "bad_words_ids": [[8, 8], [PAD]],
        "forced_eos_token_id": 5, "min_new_tokens": 4, "suppress_tokens": [6, 9], "renormalize_logits": True,
    },
]  # fmt: skip


@pytest.fixture(scope="module")
def decoder() -> Any:
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2, initializer_range=0.6,
        bos_token_id=START, eos_token_id=ENDS[1], pad_token_id=PAD, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def encoder_decoder() -> Any:
    torch.manual_seed(3)
    config = transformers.MarianConfig(
        vocab_size=VOCAB, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=POSITIONS,
        init_std=0.6, pad_token_id=PAD, eos_token_id=ENDS[0], decoder_start_token_id=START, bos_token_id=None,
        forced_eos_token_id=None, dropout=0.0, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():  # random layers repeat one token for ever, unless they hear more of the tokens so far
        model.model.decoder.embed_tokens.weight *= 6
        model.model.decoder.embed_positions.weight *= 2
        for layer in model.model.decoder.layers:
            layer.encoder_attn.out_proj.weight *= 0.2
    return model


def expected(model: Any, row: list[int], **options: Any) -> list[tuple[tuple[int, ...], float | None]]:
    """Ids of each text that `generate` returns, without what comes before and ends it, and their scores."""
    end = model.config.eos_token_id
    own = transformers.GenerationConfig(pad_token_id=PAD, eos_token_id=end, decoder_start_token_id=START)
    found = model.generate(
        torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), generation_config=own,
        do_sample=False, output_scores=True, return_dict_in_generate=True, **options,
    )  # fmt: skip
    ends = options.get("eos_token_id", end)
    ends = ends if isinstance(ends, list) else [ends]
    scores = found.get("sequences_scores")
    texts = [text[1 if model.config.is_encoder_decoder else len(row) :] for text in found.sequences.tolist()]
    # Padding that is shorter hypotheses' is cut with what ends them; that of a text that reached its limit has none.
    cut = [next((at for at, token in enumerate(text) if token in ends), len(text)) for text in texts]
    return [
        (tuple(text[:end]), None if scores is None else float(scores[at]))
        for at, (text, end) in enumerate(zip(texts, cut, strict=True))
    ]


def found(model: Any, rows: list[list[int]], **options: Any) -> list[list[Hypothesis]]:
    config = GenerationConfig(**options)
    limits = Limits.of(config, config.ends or (model.config.eos_token_id,), POSITIONS)
    decoding = Decoding.of(config, limits, VOCAB)
    after_encoder = model.config.is_encoder_decoder
    prompt = Prompt.of([[START]] * len(rows) if after_encoder else rows)
    sources = rows if after_encoder else []
    return decoding.run(ReferenceRows(model, len(rows), sources), prompt, [0] * len(rows), lambda: None)


@pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_ragged_batch_gives_what_generate_gives_each_row_alone(
    request: pytest.FixtureRequest, kind: str, options: dict[str, Any], num_beams: int
) -> None:
    model = request.getfixturevalue(kind)
    given = {"num_beams": num_beams, "num_return_sequences": num_beams, **options}
    if "max_length" not in options:
        given["max_new_tokens"] = MOST
    for row, several in zip(PROMPTS, found(model, PROMPTS, **given), strict=True):
        wanted = expected(model, row, **given)
        assert [one.token_ids for one in several] == [ids for ids, _ in wanted], row
        if num_beams > 1:
            assert [one.score for one in several] == pytest.approx([score for _, score in wanted], abs=1e-4), row


def test_one_of_several_forced_ends_is_taken_last(decoder: Any, encoder_decoder: Any) -> None:
    """A search has no order among them, as they are equally likely."""
    options = {"forced_eos_token_id": [6, 5, 11], "max_new_tokens": 5, "min_new_tokens": 5}
    for model in (decoder, encoder_decoder):
        for row, (one,) in zip(PROMPTS, found(model, PROMPTS, **options), strict=True):
            assert (one.token_ids, None) in expected(model, row, **options)
        for several in found(model, PROMPTS, **options, num_beams=3, num_return_sequences=3):
            for one in several:
                assert one.finish_reason == "stop" or one.token_ids[-1] in (6, 5, 11)


@pytest.mark.parametrize("options", [options for options in OPTIONS if "renormalize_logits" not in options], ids=str)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_every_option_changes_the_output(
    decoder: Any, encoder_decoder: Any, options: dict[str, Any], num_beams: int
) -> None:
    base = {
        "num_beams": num_beams,
        "num_return_sequences": num_beams,
        "max_new_tokens": None if "max_length" in options else MOST,
    }
    pairs = [
        (found(model, PROMPTS, **base), found(model, PROMPTS, **base, **options))
        for model in (decoder, encoder_decoder)
    ]
    assert any(tokens(without) != tokens(with_it) for without, with_it in pairs)


def tokens(found: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[one.token_ids for one in several] for several in found]


@pytest.mark.parametrize("num_beams", [1, 2])
def test_options_that_leave_no_token_are_refused_at_that_step(decoder: Any, num_beams: int) -> None:
    with pytest.raises(OptionError, match="the options leave .* no"):
        found(decoder, PROMPTS, suppress_tokens=list(range(VOCAB)), max_new_tokens=3, num_beams=num_beams)


def test_ids_outside_the_vocabulary_are_refused_with_the_options_that_hold_them() -> None:
    options = GenerationConfig(suppress_tokens=[3, VOCAB], bad_words_ids=[[1, 99], [98]], eos_token_id=VOCAB)
    with pytest.raises(OptionError) as caught:
        processors_of(options, Limits((2,), 0, 4), VOCAB)
    assert str(caught.value) == (
        "bad_words_ids holds 98, 99, outside the vocabulary of 23; "
        "suppress_tokens holds 23, outside the vocabulary of 23; "
        "eos_token_id holds 23, outside the vocabulary of 23"
    )


def test_a_prompt_that_leaves_no_room_is_refused(decoder: Any) -> None:
    with pytest.raises(OptionError, match="a prompt has 7 tokens, prompt and text may have 7 together"):
        found(decoder, PROMPTS, max_length=7)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_model_of_very_many_positions_takes_no_memory_for_them(decoder: Any, num_beams: int) -> None:
    config = GenerationConfig(num_beams=num_beams, early_stopping=True, no_repeat_ngram_size=4)
    decoding = Decoding.of(config, Limits.of(config, range(3, VOCAB), 10**12), VOCAB)
    several = decoding.run(ReferenceRows(decoder, 2), Prompt.of(PROMPTS[:2]), [0, 0], lambda: None)
    assert [texts[0].finish_reason for texts in several] == ["stop", "stop"]


def test_nothing_is_asked_of_logits_where_no_option_is_set() -> None:
    assert processors_of(GenerationConfig(), Limits((2,), 0, 9), VOCAB) == ()


def test_a_history_has_each_rows_tokens_at_its_end() -> None:
    history = History(Prompt.of([[7, 8], [4, 5, 6, 9]]), Limits((2,), 1, 100, least_length=4, most_length=50))
    for token in range(70):  # beyond the room that there is at first
        history.append(np.array([token, 100 + token]))
    assert history.ids[0, history.begins[0] :].tolist() == [7, 8, *range(70)]
    assert history.ids[1].tolist() == [4, 5, 6, 9, *range(100, 170)]
    assert (history.lengths.tolist(), history.least.tolist(), history.most.tolist()) == ([72, 74], [2, 1], [48, 46])
    history.select(np.array([1, 1, 0]))
    assert history.text[:, -1].tolist() == [169, 169, 69]
