"""The encoder-decoder: what may see what, and that every way of cutting the computation gives the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgeformer.models.configs.paper import TransformerConfig, preset
from edgeformer.models.transformer import Transformer

MakeModel = Callable[..., Transformer]
Rows = Sequence[Sequence[int]]

VARIANTS = [
    pytest.param({}, id="paper"),
    pytest.param({"norm_placement": "pre", "norm_eps": 0.01}, id="pre-norm"),
    pytest.param({"positions": "learned", "activation": "gelu", "norm_eps": 0.01}, id="learned-gelu"),
    pytest.param({"norm_placement": "pre", "activation": "silu", "scale_embeddings": False}, id="pre-norm-silu"),
]
every_variant = pytest.mark.parametrize("variant", VARIANTS)

SOURCES = [[3, 4, 5, 6, 7, 8, 9], [10], [11, 3, 12, 4]]
TARGETS = [[1, 5, 9, 13, 17, 21, 25], [1, 28], [1, 7, 7, 3]]


def same(actual: Tensor | Sequence[Tensor], expected: Tensor | Sequence[Tensor]) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def padded(rows: Rows, to: int = 0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows as one tensor (batch, at least `to`), with random ids behind their ends, and their lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    shape = (len(rows), max(to, int(lengths.max())))
    ids = torch.randint(29, shape, generator=torch.Generator().manual_seed(seed))
    for row, given in enumerate(rows):
        ids[row, : len(given)] = torch.tensor(given)
    return ids, lengths


def alone(model: Transformer, sources: Rows = SOURCES, targets: Rows = TARGETS) -> list[Tensor]:
    """Each row's logits (its target length, vocab_size), without a cache, a batch or padding."""
    rows = zip(sources, targets, strict=True)
    return [model(torch.tensor([s]), torch.tensor([len(s)]), torch.tensor([t]))[0] for s, t in rows]


def whole(model: Transformer, **padding: int) -> list[Tensor]:
    """Each row's logits from one batch, without a cache."""
    logits = model(*padded(SOURCES, **padding), padded(TARGETS, **padding)[0])
    return [row[: len(target)] for row, target in zip(logits, TARGETS, strict=True)]


def empty_cache(model: Transformer, batch: int, capacity: int, fill: float = 0.0) -> list[Tensor]:
    config = model.config
    shape = (batch, config.num_heads, capacity, config.head_dim)
    return [torch.full(shape, fill, dtype=torch.float64) for _ in range(2 * config.num_decoder_layers)]


def in_steps(
    model: Transformer,
    cuts: Sequence[Sequence[int]],
    *,
    targets: Rows = TARGETS,
    sources: Rows = SOURCES,
    capacity: int = 16,
    fill: float = 0.0,
    **padding: int,
) -> list[Tensor]:
    """Each row's logits from `encode` and `step`; step i takes cuts[i][row] tokens of each row, which may be 0."""
    source_ids, source_lengths = padded(sources, **padding)
    encoded = model.encode(source_ids, source_lengths)
    cache = empty_cache(model, len(sources), capacity, fill)
    lengths = torch.zeros(len(sources), dtype=torch.int64)
    logits: list[list[Tensor]] = [[] for _ in sources]
    for counts in cuts:
        new = [target[at : at + n] for target, at, n in zip(targets, lengths.tolist(), counts, strict=True)]
        ids, taken = padded(new, seed=padding.get("seed", 0))
        everywhere = torch.arange(ids.shape[1]).expand(len(sources), -1)
        step, cache = model.step(ids, lengths, everywhere, source_lengths, cache, encoded)
        for row, n in enumerate(counts):
            logits[row].append(step[row, :n])
        lengths = lengths + taken
    return [torch.cat(row) for row in logits]


# What may see what


@every_variant
def test_changing_target_token_j_moves_no_output_before_j(make_model: MakeModel, variant: dict[str, Any]) -> None:
    model = make_model(**variant)
    source, lengths = torch.tensor([SOURCES[0]]), torch.tensor([7])
    target = torch.tensor([TARGETS[0]])
    before = model(source, lengths, target)[0]
    for j in range(target.shape[1]):
        changed = target.clone()
        changed[0, j] = 2
        moved = (model(source, lengths, changed)[0] - before).abs().amax(-1)
        assert (moved[:j] <= 1e-12).all(), f"token {j} moved an output before it"
        assert (moved[j:] > 1e-6).all(), f"token {j} did not move every output from it on"


def test_tokens_of_one_step_do_not_see_the_ones_after_them(make_model: MakeModel) -> None:
    model = make_model()
    other = [[1, 5, 9, 13, 2, 2, 2], *TARGETS[1:]]
    cuts = [(2, 1, 1), (5, 1, 3)]
    first, second = in_steps(model, cuts), in_steps(model, cuts, targets=other)
    same(first[0][:4], second[0][:4])
    assert ((first[0][4:] - second[0][4:]).abs().amax(-1) > 1e-6).all()
    same(first[1:], second[1:])


def test_every_source_token_moves_every_output(make_model: MakeModel) -> None:
    model = make_model()
    source, lengths, target = torch.tensor([SOURCES[0]]), torch.tensor([7]), torch.tensor([TARGETS[0]])
    before = model(source, lengths, target)[0]
    for j in range(7):
        changed = source.clone()
        changed[0, j] = 2
        assert ((model(changed, lengths, target)[0] - before).abs().amax(-1) > 1e-9).all()


def test_the_order_of_the_source_matters(make_model: MakeModel) -> None:
    model, target = make_model(), torch.tensor([TARGETS[0]])
    forwards, backwards = (model(torch.tensor([s]), torch.tensor([7]), target) for s in (SOURCES[0], SOURCES[0][::-1]))
    assert (forwards - backwards).abs().max() > 1e-6


# Agreement with torch's own layers


def copy_attention(theirs: nn.MultiheadAttention, ours: Any) -> None:
    projections = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.data = torch.cat([projection.weight.data for projection in projections])
    theirs.in_proj_bias.data = torch.cat([projection.bias.data for projection in projections])
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_rest(theirs: Any, ours: Any, residuals: Sequence[Any]) -> None:
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    for number, residual in enumerate(residuals, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(residual.norm.state_dict())


def torch_layers(model: Transformer) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """torch's encoder and decoder with the model's sizes, choices and weights."""
    config = model.config
    pre = config.norm_placement == "pre"
    activation = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}[config.activation]
    choices: dict[str, Any] = {
        "dim_feedforward": config.d_ff, "activation": activation, "layer_norm_eps": config.norm_eps,
        "norm_first": pre, "batch_first": True,
    }  # fmt: skip
    norms = [nn.LayerNorm(config.d_model, eps=config.norm_eps) if pre else None for _ in range(2)]
    for norm, given in zip(norms, (model.encoder_norm, model.decoder_norm), strict=True):
        if norm:
            norm.load_state_dict(given.state_dict())
    encoder_layer = nn.TransformerEncoderLayer(config.d_model, config.num_heads, **choices)
    decoder_layer = nn.TransformerDecoderLayer(config.d_model, config.num_heads, **choices)
    encoder = nn.TransformerEncoder(encoder_layer, config.num_encoder_layers, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(decoder_layer, config.num_decoder_layers, norms[1])
    theirs: Any
    ours: Any
    for theirs, ours in zip(encoder.layers, model.encoder_layers, strict=True):
        copy_attention(theirs.self_attn, ours.attention)
        copy_rest(theirs, ours, [ours.attention_residual, ours.feed_forward_residual])
    for theirs, ours in zip(decoder.layers, model.decoder_layers, strict=True):
        copy_attention(theirs.self_attn, ours.attention)
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        copy_rest(theirs, ours, [ours.attention_residual, ours.cross_residual, ours.feed_forward_residual])
    return encoder.eval(), decoder.eval()


def embedded(model: Transformer, ids: Tensor) -> Tensor:
    """What should enter the first layer, from the formulas of the paper."""
    config, length = model.config, ids.shape[1]
    if config.positions == "learned":
        positions = model.positions[:length]
    else:
        angles = [[p / 10000 ** (i // 2 * 2 / config.d_model) for i in range(config.d_model)] for p in range(length)]
        waves = [[math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(row)] for row in angles]
        positions = torch.tensor(waves)
    scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
    return model.embedding.weight[ids] * scale + positions


@every_variant
def test_the_whole_model_agrees_with_torchs_layers(make_model: MakeModel, variant: dict[str, Any]) -> None:
    model = make_model(**variant).float()
    encoder, decoder = torch_layers(model)
    (source, lengths), (target, _) = padded(SOURCES), padded(TARGETS)
    padding = torch.arange(source.shape[1]) >= lengths[:, None]
    hidden = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), diagonal=1)
    memory = encoder(embedded(model, source), src_key_padding_mask=padding)
    out = decoder(embedded(model, target), memory, tgt_mask=hidden, memory_key_padding_mask=padding)
    expected = out @ model.embedding.weight.T
    torch.testing.assert_close(model(source, lengths, target), expected, rtol=1e-5, atol=1e-5)
    assert expected.std() > 0.1, "logits so small that anything agrees"


# With a cache as without


@every_variant
def test_one_token_at_a_time_equals_everything_at_once(make_model: MakeModel, variant: dict[str, Any]) -> None:
    model = make_model(**variant)
    cuts = [tuple(int(i < len(target)) for target in TARGETS) for i in range(7)]
    same(in_steps(model, cuts), alone(model))


@pytest.mark.parametrize("cuts", [[5, 2], [3, 2, 2], [1, 6], [7], [4, 1, 1, 1]], ids=str)
def test_a_prompt_may_be_cut_anywhere(make_model: MakeModel, cuts: list[int]) -> None:
    model = make_model()
    steps = in_steps(model, [(n,) for n in cuts], sources=SOURCES[:1], targets=TARGETS[:1])
    same(steps, alone(model, SOURCES[:1], TARGETS[:1]))


@every_variant
def test_rows_whose_caches_are_unequally_full_do_not_disturb_each_other(
    make_model: MakeModel, variant: dict[str, Any]
) -> None:
    model = make_model(**variant)
    same(in_steps(model, [(1, 2, 3), (4, 0, 1), (2, 0, 0)]), alone(model))


def test_what_the_unwritten_end_of_a_cache_holds_changes_nothing(make_model: MakeModel) -> None:
    model, cuts = make_model(), [(3, 1, 2), (4, 1, 2)]
    clean = in_steps(model, cuts)
    for fill in (1.0, -1e6, 1e30):
        same(in_steps(model, cuts, fill=fill), clean)


@pytest.mark.parametrize("capacity", [7, 8, 15, 64, 200])
def test_the_capacity_changes_nothing(make_model: MakeModel, capacity: int) -> None:
    model = make_model()
    same(in_steps(model, [(2, 1, 2), (3, 1, 2), (2, 0, 0)], capacity=capacity), alone(model))


def test_rewinding_a_row_and_going_on_otherwise_leaves_no_trace(make_model: MakeModel) -> None:
    model = make_model()
    source, lengths = padded(SOURCES[:1])
    encoded, cache = model.encode(source, lengths), empty_cache(model, 1, 16)
    everywhere, target = torch.arange(4)[None], torch.tensor([TARGETS[0]])
    _, cache = model.step(target[:, :3], torch.tensor([0]), everywhere[:, :3], lengths, cache, encoded)
    guessed = torch.tensor([[13, 2, 2, 2]])  # speculation: the first guess is right, the others are not
    _, cache = model.step(guessed, torch.tensor([3]), everywhere, lengths, cache, encoded)
    logits, _ = model.step(target[:, 4:], torch.tensor([4]), everywhere[:, :3], lengths, cache, encoded)
    same(logits[0], alone(model)[0][4:])


def test_a_step_leaves_the_caches_that_it_was_given_as_they_were(make_model: MakeModel) -> None:
    model = make_model()
    source, lengths = padded(SOURCES)
    cache = empty_cache(model, 3, 8, fill=0.5)
    before = [tensor.clone() for tensor in cache]
    model.step(torch.ones(3, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), torch.zeros(3, 1).long(),
               lengths, cache, model.encode(source, lengths))  # fmt: skip
    assert all(torch.equal(*pair) for pair in zip(cache, before, strict=True))


def test_padding_may_stand_past_the_last_position(make_model: MakeModel) -> None:
    model = make_model(max_positions=7)
    cuts = [(1, 0, 1), (5, 0, 2), (1, 2, 1)]  # in the last step the first row has one real token, at position 6
    same(in_steps(model, cuts), alone(model))


def test_logits_at_picks_what_all_the_logits_have_there(make_model: MakeModel) -> None:
    model = make_model()
    (source, lengths), (target, _) = padded(SOURCES), padded(TARGETS)
    encoded, cache, start = model.encode(source, lengths), empty_cache(model, 3, 8), torch.zeros(3, dtype=torch.int64)
    every, _ = model.step(target, start, torch.arange(7).expand(3, -1), lengths, cache, encoded)
    at = torch.tensor([[6, 0], [1, 1], [3, 2]])
    picked, _ = model.step(target, start, at, lengths, cache, encoded)
    assert picked.shape == (3, 2, 29)
    for row in range(3):
        same(picked[row], every[row, at[row]])


def test_encode_gives_each_decoder_layers_keys_and_values(make_model: MakeModel) -> None:
    encoded = make_model().encode(*padded(SOURCES, to=9))
    assert [tuple(tensor.shape) for tensor in encoded] == [(3, 5, 9, 4)] * 6
    assert not any(torch.equal(encoded[0], other) for other in encoded[1:])


# A batch gives each row exactly what it gets alone


@every_variant
def test_a_ragged_batch_equals_each_row_alone(make_model: MakeModel, variant: dict[str, Any]) -> None:
    model = make_model(**variant)
    same(whole(model), alone(model))


@pytest.mark.parametrize("to", [8, 16, 64])
def test_the_padded_length_changes_nothing(make_model: MakeModel, to: int) -> None:
    model = make_model()
    same(whole(model, to=to), alone(model))
    same(in_steps(model, [(3, 2, 2), (4, 0, 2)], to=to), alone(model))


def test_the_ids_of_the_padding_change_nothing(make_model: MakeModel) -> None:
    model, cuts = make_model(), [(3, 1, 2), (4, 1, 2)]
    for seed in range(1, 4):
        same(whole(model, to=10, seed=seed), whole(model, to=10))
        same(in_steps(model, cuts, to=10, seed=seed), in_steps(model, cuts, to=10))


def test_the_order_of_the_rows_changes_nothing(make_model: MakeModel) -> None:
    model = make_model()
    sources, targets = (rows[2:] + rows[:2] for rows in (SOURCES, TARGETS))
    turned = in_steps(model, [(2, 3, 1), (2, 4, 1)], sources=sources, targets=targets)
    same(turned[1:] + turned[:1], alone(model))


def test_special_ids_are_tokens_like_all_others(make_model: MakeModel) -> None:
    """No sequence is read from its ids: pad and end may stand inside a source or a target."""
    model = make_model()
    sources, targets = [[0, 3, 2, 0], [2]], [[1, 0, 2, 0, 5], [0, 1]]
    same(in_steps(model, [(2, 2), (3, 0)], sources=sources, targets=targets), alone(model, sources, targets))
    shorter = alone(model, [[0, 3, 2], [2]], targets)
    assert (alone(model, sources, targets)[0] - shorter[0]).abs().max() > 1e-6


# Embeddings


def test_one_matrix_is_input_embedding_of_both_sides_and_projection(make_model: MakeModel) -> None:
    model = make_model()
    assert [name for name, tensor in model.named_parameters() if 29 in tensor.shape] == ["embedding.weight"]
    x = torch.randn(2, 3, 20, dtype=torch.float64)
    same(model.project(x), x @ model.embedding.weight.T)
    ids = torch.arange(29)[None]
    table = model.positions[torch.arange(29)]
    same(model.embed(ids, torch.arange(29)[None])[0] - table, model.embedding.weight * math.sqrt(20))


def test_embeddings_are_not_scaled_where_the_config_says_so(make_model: MakeModel) -> None:
    model = make_model(scale_embeddings=False)
    at = torch.zeros(1, 29, dtype=torch.int64)
    same(model.embed(torch.arange(29)[None], at)[0] - model.positions[0], model.embedding.weight)


def test_scaled_embeddings_begin_with_variance_1() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(vocab_size=400, d_model=64, num_encoder_layers=1, num_decoder_layers=1))
    assert (model.embedding.weight * math.sqrt(64)).var().item() == pytest.approx(1, rel=0.05)


def test_sinusoids_are_not_weights_and_learned_positions_are(make_model: MakeModel) -> None:
    assert "positions" not in make_model().state_dict()
    learned = make_model(positions="learned")
    assert isinstance(learned.positions, nn.Parameter)
    assert learned.state_dict()["positions"].shape == (64, 20)


# Training


def test_every_parameter_is_trained(make_model: MakeModel) -> None:
    model = make_model(positions="learned", norm_placement="pre").train()
    logits = model(*padded(SOURCES), padded(TARGETS)[0])
    F.cross_entropy(logits.flatten(0, 1), torch.arange(21) % 29).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # One bias for all keys moves all the scores of a query alike, which the softmax does not see.
        assert parameter.grad.abs().max() > 1e-9 or name.endswith("attention.key.bias"), name


def test_dropout_acts_in_training_alone(make_model: MakeModel) -> None:
    model = make_model(dropout=0.5)
    arguments = (*padded(SOURCES), padded(TARGETS)[0])
    assert torch.equal(model(*arguments), model(*arguments))
    model.train()
    assert not torch.equal(model(*arguments), model(*arguments))
    without = make_model(dropout=0.0)
    assert torch.equal(without(*arguments), without.train()(*arguments))


def test_dropout_is_on_the_embeddings_and_on_each_sublayers_output(make_model: MakeModel) -> None:
    """Section 5.4: where everything is dropped, nothing is left of the former, and of the latter the residual path."""
    model = make_model(norm_placement="pre", dropout=1 - 1e-12).train()
    (source, lengths), (target, _) = padded(SOURCES), padded(TARGETS)
    positions = torch.arange(7)[None]
    same(model.embed(target, positions), torch.zeros(3, 7, 20, dtype=torch.float64))
    model.dropout.p = 0.0
    same(model(source, lengths, target), model.project(model.embed(target, positions)))


# The paper's sizes: table 3


def count(config: TransformerConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config).parameters())


def counted_by_hand(vocab_size: int, d_model: int, d_ff: int, num_layers: int) -> int:
    attention, norm = 4 * (d_model * d_model + d_model), 2 * d_model
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    return vocab_size * d_model + num_layers * (encoder + decoder)


def test_base_has_the_papers_65_million_parameters() -> None:
    number = count(preset("base"))
    assert number == counted_by_hand(37000, 512, 2048, 6) == 63_082_496
    assert number == pytest.approx(65e6, rel=0.03)  # the paper's vocabulary is "about 37000"


def test_big_has_the_papers_213_million_parameters() -> None:
    number = count(preset("big"))
    assert number == counted_by_hand(37000, 1024, 4096, 6) == 214_245_376
    assert number == pytest.approx(213e6, rel=0.01)
