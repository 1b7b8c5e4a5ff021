"""Engines of every family are built: none is forgotten, and what is not fused is told with its reason."""

from __future__ import annotations

import dataclasses

import pytest
from engine_builds import Row, make_model, markdown
from family_models import CONFIGS, family_model

from edgeformer.exporter.targets.limits import HEAD_SIZES
from edgeformer.models.families import FAMILIES
from edgeformer.models.protocols import kind_of

GOOD = Row("llama", "decoder", "fp16", ("8.9",), attentions=2, fused=2, masks=("boolean",))


def test_every_family_has_a_small_model_or_is_built_like_one_that_has() -> None:
    built = {FAMILIES[name] for name in CONFIGS}
    assert [name for name, family in FAMILIES.items() if family not in built] == ["transformer"], (
        "the base model is one"
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_small_models_have_heads_that_fused_kernels_take(name: str) -> None:
    config = family_model(name).config
    assert config.head_dim in HEAD_SIZES["native"]
    assert config.num_layers == 2


def test_small_models_are_of_all_kinds() -> None:
    assert {kind_of(family_model(name)) for name in ("t5", "llama", "bert")} == {
        "encoder-decoder",
        "decoder",
        "encoder",
    }


def test_what_is_not_fused_or_not_built_is_not_good() -> None:
    assert GOOD.good
    for change in ({"fused": 1}, {"attentions": 0, "fused": 0}, {"unused_inputs": 1}, {"reason": "no kernel"}):
        assert not dataclasses.replace(GOOD, **change).good  # type: ignore[arg-type]


def test_the_table_says_why_not() -> None:
    lost = Row("t5", "encoder-decoder", "fp16", ("8.9",), reason="no such kernel")
    part = dataclasses.replace(GOOD, model="mt5", fused=1, reason="layer.0: two kernels")
    other = dataclasses.replace(GOOD, model="base")
    assert markdown([GOOD, lost, part, other]).splitlines()[2:] == [
        "| llama | decoder | fp16 | 2 of 2 | boolean | - |",
        "| t5 | encoder-decoder | no | - | - | no such kernel |",
        "| mt5 | decoder | fp16 | 1 of 2 | boolean | layer.0: two kernels |",
    ]


def test_an_unknown_model_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(SystemExit, match="there is no model 'lama'; known: g2p, base, bart"):
        make_model("lama")
